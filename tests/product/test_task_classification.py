"""Classification from the command line: train, resume, evaluate, predict; files as people have them, and bad ones."""

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import call
from tiny_run import Cut, at, crash, evidence, resume

from statewise import load
from statewise.models import LINEAGE
from statewise.specs import UserError
from statewise.tasks import Trained, train
from statewise.training.progress import Silent

SETTINGS: dict[str, Any] = {
    "model.width": 8,
    "model.embedding": 8,
    "data.min_count": 1,
    "train.steps": 12,
    "train.batch": 4,
    "train.warmup": 2,
    "train.log_every": 1,
    "train.evaluate_every": 4,
    "train.save_every": 3,
}
GOOD, BAD = ("warm", "clever", "funny"), ("dull", "cold", "long")


def rows(count: int) -> list[tuple[str, str]]:
    words = [(GOOD, "good"), (BAD, "bad")]
    return [
        (f"a {words[i % 2][0][i // 2 % 3]} film {'of the year ' * (i % 3)}".strip(), words[i % 2][1])
        for i in range(count)
    ]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("labelled")
    (folder / "train.tsv").write_text("label\ttext\n" + "".join(f"{label}\t{text}\n" for text, label in rows(24)))
    held = "".join(f'"{text}",{label}\r\n' for text, label in rows(6))
    (folder / "held.csv.gz").write_bytes(gzip.compress(b"\xef\xbb\xbf" + f"text,label\r\n{held}".encode()))
    return folder


def start(files: Path, out: Path, settings: dict[str, Any] | None = None, **more: Any) -> Trained:
    merged = {**SETTINGS, "data.validation": [str(files / "held.csv.gz")], **(settings or {})}
    given = {"data": files / "train.tsv", "display": Silent(), **more}
    return train("classification", settings=merged, out=out, **given)


@pytest.fixture(scope="module")
def trained(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    settings = {"train.steps": 100, "train.lr": 0.02, "model.dropout": 0.2, "model.input_dropout": 0.2}
    return start(files, tmp_path_factory.mktemp("run") / "classifier", settings).path


@pytest.mark.parametrize("settings", [{"train.accumulate": 2}, {"train.average": 0.9, "objective.weights": "balanced"}])
def test_a_run_that_was_cut_is_the_run_that_was_not(settings: dict[str, Any], files: Path, tmp_path: Path) -> None:
    whole = evidence(start(files, tmp_path / "whole", settings))
    for cut in (5, 10):
        with pytest.raises(Cut):
            start(files, tmp_path / f"{cut}", settings, on_step=at(cut, crash))
        again = resume(tmp_path / f"{cut}")
        assert again.resumed_from is not None
        assert again.resumed_from < cut
        assert evidence(again) == whole


@pytest.mark.parametrize("kind", [row.spec.kind for row in LINEAGE if row.spec.learns == "gradient"])
@pytest.mark.parametrize("bidirectional", [True, False])
def test_whatever_is_listed_classifies(kind: str, bidirectional: bool, files: Path, tmp_path: Path) -> None:
    settings = {"model.kind": kind, "reader.bidirectional": bidirectional, "train.steps": 2, "train.evaluate_every": 2}
    made = start(files, tmp_path / kind, settings)
    assert len(list(load(made.path).predict(files / "held.csv.gz"))) == 6


def test_it_learns_and_says_so(trained: Path, files: Path) -> None:
    said = call("evaluate", str(trained), "--json")
    assert said.code == 0, said.err
    found = json.loads(said.out)
    assert found["accuracy"] == 1.0
    assert found["rows"] == 6
    assert found["majority_accuracy"] == 0.5
    assert found["labels"] == ["bad", "good"]
    assert found["confusion"] == [[3, 0], [0, 3]]
    table = call("evaluate", str(trained), "--data", str(files / "train.tsv"))
    assert "always 'bad'" in table.out
    assert "24 rows" in table.out
    assert "│ bad  │  12 │    0 │" in table.out, "the confusion matrix"


def test_a_label_never_seen_counts_as_wrong(trained: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.jsonl"
    texts = [("a warm film", "good"), ("a odd film", "odd")]
    other.write_text("".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in texts))
    found = load(trained).evaluate(other)._asdict()
    assert found["accuracy"] == 0.5
    assert found["unseen"] == {"odd": 1}


def test_no_row_is_lost(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "new.txt").write_bytes(b"a warm film\r\n\r\n" + b"dull " * 5000 + b"\nwarm")
    said = call("predict", str(trained), str(tmp_path / "new.txt"))
    assert said.code == 0, said.err
    lines = said.out.splitlines()
    assert len(lines) == 4
    assert lines[0] == lines[3] == "good"
    assert lines[2] == "bad"
    said = call("predict", str(trained), str(tmp_path / "new.txt"), "--json", "--out", str(tmp_path / "said.jsonl"))
    found = [json.loads(line) for line in (tmp_path / "said.jsonl").read_text().splitlines()]
    assert [row["line"] for row in found] == [1, 2, 3, 4]
    assert all(abs(sum(row["probabilities"].values()) - 1) < 1e-9 for row in found)
    assert not list(tmp_path.glob(".tmp-*"))


def test_numbers_with_a_class(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    label_N = np.arange(40) % 2
    x_NT = rng.normal(size=(40, 6)) + 3 * label_N[:, None]
    np.savez(tmp_path / "waves.npz", x=x_NT, y=label_N, x_test=x_NT[:10], y_test=label_N[:10])
    settings = {**SETTINGS, "data.kind": "values", "data.label": "y", "train.steps": 40, "train.lr": 0.02}
    made = train(
        "classification", settings=settings, data=tmp_path / "waves.npz", out=tmp_path / "run", display=Silent()
    )
    run = load(made.path)
    assert run.evaluate(f"{tmp_path / 'waves.npz'}:x_test:y_test")._asdict()["accuracy"] == 1.0
    assert [row["label"] for row in run.predict(tmp_path / "waves.npz")][:2] == ["0", "1"]
    assert len(list(run.predict(f"{tmp_path / 'waves.npz'}:x_test"))) == 10, "an array without labels"
    with pytest.raises(UserError, match=r":x_test does not name two arrays\n.*:x:y"):
        run.evaluate(f"{tmp_path / 'waves.npz'}:x_test")


def test_rows_that_were_learned_from_and_rows_left_out_are_told(tmp_path: Path) -> None:
    """A corpus that repeats itself flatters; a label may be one that nobody gave."""
    (tmp_path / "train.tsv").write_text(
        "label\ttext\n" + "".join(f"{label}\tfilm {i // 2}\n" for i in range(40) for label in ("good", "bad", "none"))
    )
    settings = {**SETTINGS, "data.held_out": 0.2, "train.steps": 1, "data.leave_out": ["none"]}
    made = train(
        "classification", settings=settings, data=tmp_path / "train.tsv", out=tmp_path / "run", display=Silent()
    )
    found = load(made.path).evaluate()
    assert 0 < found._asdict()["learned"] <= found._asdict()["rows"] == 16
    assert "stand in the training part too, word by word" in found.report("x").note
    assert load(made.path).evaluate(tmp_path / "train.tsv")._asdict()["learned"] == 0
    with pytest.raises(UserError, match=r"data.leave_out: no row has the label 'nun'\ndid you mean 'none'\?"):
        train(
            "classification",
            settings={**settings, "data.leave_out": ["nun"]},
            data=tmp_path / "train.tsv",
            out=tmp_path / "other",
            display=Silent(),
        )


def test_other_data_under_the_same_name_are_refused(files: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.tsv"
    own.write_text((files / "train.tsv").read_text())
    with pytest.raises(Cut):
        start(files, tmp_path / "run", data=own, on_step=at(5, crash))
    own.write_text((files / "train.tsv").read_text().replace("warm", "mild"))
    with pytest.raises(UserError, match="not the data that this run began with"):
        resume(tmp_path / "run")


MISTAKES = [
    (["--data", "absent.tsv"], "does not exist"),
    (["--data", "train.tsv", "--set", "data.text=txt"], "'text'"),
    (["--data", "train.tsv", "--set", "train.truncation=8"], "reads whole sequences"),
    (["--data", "train.tsv", "--set", "train.judge=acuracy"], "accuracy"),
    (["--data", "train.tsv", "--set", "model.kind=markov"], "markov"),
    (["--data", "train.tsv", "--set", "data.kind=values"], "expected a finite number"),
    (["--data", "ragged.tsv"], "ragged.tsv line 3"),
]


@pytest.mark.parametrize(("options", "says"), MISTAKES, ids=[says for _, says in MISTAKES])
def test_a_mistake_is_answered(
    options: list[str], says: str, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(files / "train.tsv", tmp_path)
    (tmp_path / "ragged.tsv").write_text("label\ttext\ngood\ta film\nbad\n")
    said = call("train", "classification", *options, "--out", "run")
    assert said.code == 2, said.err
    assert says in said.err
    assert "Traceback" not in said.err
    assert not (tmp_path / "run").exists()


def test_a_test_file_is_evaluated_at_the_end_of_training(tmp_path: Path) -> None:
    rows = [f"{label}\ta {word} film" for label, word in (("good", "warm"), ("bad", "dull")) * 20]
    for name in ("train.tsv", "test.tsv"):
        (tmp_path / name).write_text("\n".join(["label\ttext", *rows]) + "\n")
    options = ("--data", str(tmp_path / "train.tsv"), "--steps", "3", "--set", "model.width=4", "--quiet")
    missing = call(
        "train", "classification", *options, "--test", str(tmp_path / "none.tsv"), "--out", str(tmp_path / "a")
    )
    assert missing.code == 2
    assert "there is no such file" in missing.err
    assert not (tmp_path / "a").exists()
    test = ("--test", str(tmp_path / "test.tsv"))
    said = call("train", "classification", *options, *test, "--out", str(tmp_path / "b"), "--json")
    assert said.code == 0, said.err
    found = json.loads(said.out)["test"]
    again = call("evaluate", str(tmp_path / "b"), "--data", str(tmp_path / "test.tsv"), "--json")
    assert (found["rows"], found) == (40, json.loads(again.out))
    said = call("train", "classification", *options, *test, "--out", str(tmp_path / "c"))
    assert "accuracy" in said.out
    assert "bag-of-words" in said.out
