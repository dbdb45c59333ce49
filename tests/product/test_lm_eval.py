"""The evaluation harness on a run, offline: a task of ours gives the figures that the run itself gives."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from command import call

import statewise as sw

lm_eval = pytest.importorskip("lm_eval")

CHOICES = """
task: animals
dataset_path: json
dataset_kwargs: {{data_files: {{test: {folder}/rows.jsonl}}}}
output_type: multiple_choice
test_split: test
doc_to_text: "{{{{question}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: "{{{{answer}}}}"
metric_list: [{{metric: acc}}]
"""
ROLLING = """
task: lines
dataset_path: json
dataset_kwargs: {{data_files: {{test: {folder}/rows.jsonl}}}}
output_type: loglikelihood_rolling
test_split: test
doc_to_text: ""
doc_to_target: "{{{{text}}}}"
metric_list: [{{metric: bits_per_byte}}]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    rows: list[dict[str, Any]] = [
        {"question": "ROMEO:\nI am", "choices": [" the", " zqx"], "answer": 0, "text": "ROMEO:\nI am the sun."},
        {"question": "JULIET:\nO my", "choices": [" xkj", " lord"], "answer": 1, "text": "JULIET:\nO my lord."},
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "animals.yaml").write_text(CHOICES.format(folder=tmp_path))
    (tmp_path / "lines.yaml").write_text(ROLLING.format(folder=tmp_path))
    return tmp_path


def test_choices_and_whole_texts(folder: Path) -> None:
    options = ("--tasks", "animals", "--tasks", "lines", "--task-folder", str(folder), "--json")
    said = call("evaluate", "shakespeare-lstm", *options)
    assert said.code == 0, said.err
    found = json.loads(said.out[said.out.index("{") :])
    assert found["animals"]["acc,none"] == 1.0
    run = sw.load("shakespeare-lstm", device="cpu")
    texts = [json.loads(line)["text"] for line in (folder / "rows.jsonl").read_text().splitlines()]
    nats = sum(run.evaluate([text]).nats_per_token * run.evaluate([text]).tokens for text in texts)
    # The harness does not count the end of a text, which `evaluate` does.
    ends = sum(_end_nats(run, text) for text in texts)
    expected = (nats - ends) / math.log(2) / sum(len(text.encode()) for text in texts)
    assert found["lines"]["bits_per_byte,none"] == pytest.approx(expected, rel=1e-4)


def _end_nats(run: Any, text: str) -> float:
    import torch

    ids = torch.tensor([[run.tokenizer.end_id, *run.tokenizer.encode(text)]])
    with torch.no_grad():
        return -float(run.model(ids)[0][0, -1].double().log_softmax(-1)[run.tokenizer.end_id])


def test_generation_and_greedy(folder: Path) -> None:
    from statewise.interop.lm_eval import StatewiseLM

    run = sw.load("shakespeare-lstm", device="cpu")
    model = StatewiseLM(run)
    text = run.generate("ROMEO:", tokens=12, sampling=sw.Sampling(temperature=0))
    assert model._generate("ROMEO:", {"max_gen_toks": 12, "until": []}) == text
    nats, greedy = model._continuation("ROMEO:", text)
    assert greedy
    assert nats < 0
    assert model._continuation("ROMEO:", "zqzq")[1] is False


def test_mistakes(folder: Path) -> None:
    assert "is not a task of lm_eval" in call("evaluate", "shakespeare-lstm", "--tasks", "no-such-task").err
