"""The embedded phrases are learned well enough to be translated word for word, far beyond what is trivial."""

from pathlib import Path

import pytest

from statewise.tasks import train
from statewise.tasks.translation import TranslationRun
from statewise.training.progress import Silent


@pytest.mark.slow
def test_phrases_are_translated_exactly(tmp_path: Path) -> None:
    settings = {
        "model.encoder.width": 64,
        "model.encoder.dropout": 0.0,
        "model.decoder.width": 96,
        "model.decoder.dropout": 0.0,
        "train.steps": 300,
        "train.batch": 32,
        "train.lr": 5e-3,
        "train.evaluate_every": 300,
        "train.save_every": 300,
        "decoding.beam": 2,
    }
    run = train("translation", settings=settings, out=tmp_path / "run", display=Silent()).load()
    assert isinstance(run, TranslationRun)
    found = run.evaluate()
    assert found.rows == 800
    assert found.nats < 0.5 < found.uniform_nats / 10
    assert found.exact > 0.3 > found.copy["exact"]
    assert found.bleu > 75 > max(found.copy["bleu"], found.frequent["bleu"]) + 50
