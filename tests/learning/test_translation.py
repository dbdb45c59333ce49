"""The embedded phrases are learned well enough to be translated word for word, far beyond what is trivial."""

from pathlib import Path
from typing import Any

import pytest

from statewise.decoding import Sampling
from statewise.tasks import train
from statewise.tasks.translation import TranslationRun
from statewise.training.progress import Silent

LEARNED: dict[str, Any] = {"train.evaluate_every": 1000, "train.save_every": 1000, "decoding.draws": 0}


@pytest.mark.slow
@pytest.mark.parametrize("context", ["initial", "each_step", "both"])
def test_row_b4_the_kind_of_a_phrase_matters(context: str, tmp_path: Path) -> None:
    """Nats with the right class, with that of another row, and of a uniform guess."""
    settings = {**LEARNED, "model.context": context}
    run = train("class-to-text", settings=settings, out=tmp_path / "run", display=Silent()).load()
    assert isinstance(run, TranslationRun)
    found = run.evaluate()
    assert found.shuffled_nats is not None
    assert found.nats + 0.5 < found.shuffled_nats < found.uniform_nats
    for language, words in (("german", {"am", "dem"}), ("english", {"on", "the"})):
        drawn = [run.generate(f"{language} date", sampling=Sampling(seed=seed)) for seed in range(10)]
        assert sum(words <= set(text.split()) for text in drawn) >= 8


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_row_b4_oscillations_are_written_from_three_numbers(tmp_path: Path) -> None:
    settings = {**LEARNED, "decoding.watch": 0}
    run = train("vector-to-series", settings=settings, out=tmp_path / "run", display=Silent()).load()
    assert isinstance(run, TranslationRun)
    found = run.evaluate()
    assert found.mse is not None
    assert found.mse < found.frequent["mse"] / 5


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
    assert found.copy is not None
    assert found.bleu is not None
    assert found.exact > 0.3 > found.copy["exact"]
    assert found.bleu > 75 > max(found.copy["bleu"], found.frequent["bleu"]) + 50
