"""Tagging from the command line: train, resume, evaluate, predict; files as people have them, and bad ones."""

import gzip
import json
import math
from pathlib import Path
from typing import Any

import pytest
from command import call
from tiny_run import Cut, at, crash, evidence, resume

from statewise import load
from statewise.models import LINEAGE
from statewise.specs import UserError
from statewise.tasks import Trained, train
from statewise.tasks.tagging import TaggingRun
from statewise.training.progress import Silent

SETTINGS: dict[str, Any] = {
    "model.width": 8,
    "words.width": 8,
    "words.characters": 4,
    "words.character_width": 4,
    "train.steps": 12,
    "train.batch": 4,
    "train.warmup": 2,
    "train.log_every": 1,
    "train.evaluate_every": 4,
    "train.save_every": 3,
}
NOUNS, VERBS = ("cat", "dog", "bird", "fox", "owl", "hen"), ("sees", "hears", "likes", "finds")


def conllu(count: int, *, noun: str = "NOUN", skip: int = 0) -> str:
    """Sentences of five words: with comments, a multiword range and an empty node."""
    blocks = []
    for i in range(skip, skip + count):
        words = ["the", NOUNS[i % 6], VERBS[i % 4], "a", NOUNS[i // 2 % 6]]
        tags = ["DET", noun, "VERB", "DET", noun]
        rows = [f"{n}\t{w}\t{w}\t{t}\t_\t_\t0\t_\t_\t_" for n, (w, t) in enumerate(zip(words, tags), start=1)]
        rows.insert(1, "2-3\tcatsees\t_\t_\t_\t_\t_\t_\t_\t_")
        rows.append("5.1\tthere\t_\t_\t_\t_\t_\t_\t_\t_")
        blocks.append("\n".join([f"# sent_id = {i}", "# text = x", *rows]))
    return "\n\n".join(blocks) + "\n\n"


def spans(count: int) -> str:
    blocks = []
    for i in range(count):
        place = [("New", "B-loc"), ("York", "I-loc")] if i % 2 else [("Rome", "B-loc")]
        rows = [(NOUNS[i % 6], "O"), ("in", "O"), *place, ("today", "O")]
        blocks.append("\n".join(f"{word} {tag}" for word, tag in rows))
    return "-DOCSTART- O\n\n" + "\n\n".join(blocks) + "\n"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tagged")
    (folder / "train.conllu").write_text(conllu(24))
    (folder / "dev.conllu.gz").write_bytes(gzip.compress(conllu(6, skip=3).encode()))
    (folder / "spans.txt").write_text(spans(20))
    return folder


def start(files: Path, out: Path, settings: dict[str, Any] | None = None, **more: Any) -> Trained:
    data = {"data.validation": [str(files / "dev.conllu.gz")]} if "data" not in more else {}
    merged = {**SETTINGS, **data, **(settings or {})}
    given = {"data": files / "train.conllu", "display": Silent(), **more}
    return train("tagging", settings=merged, out=out, **given)


@pytest.fixture(scope="module")
def trained(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return start(files, tmp_path_factory.mktemp("run") / "tagger", {"train.steps": 60, "train.lr": 0.02}).path


@pytest.fixture(scope="module")
def span_run(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    settings = {"objective.kind": "crf", "train.steps": 60, "train.lr": 0.02}
    return start(files, tmp_path_factory.mktemp("run") / "spans", settings, data=files / "spans.txt").path


# ------------------------------------------------------------------ train, resume


@pytest.mark.parametrize("objective", ["categorical", "crf"])
def test_a_run_that_was_cut_is_the_run_that_was_not(objective: str, files: Path, tmp_path: Path) -> None:
    settings = {"objective.kind": objective, "model.dropout": 0.2, "words.word_dropout": 0.3, "train.accumulate": 2}
    whole = evidence(start(files, tmp_path / "whole", settings))
    for cut in (5, 10):
        with pytest.raises(Cut):
            start(files, tmp_path / f"{cut}", settings, on_step=at(cut, crash))
        again = resume(tmp_path / f"{cut}")
        assert again.resumed_from is not None
        assert again.resumed_from < cut
        assert evidence(again) == whole


@pytest.mark.parametrize("kind", [row.spec.kind for row in LINEAGE if row.spec.learns == "gradient"])
def test_whatever_is_listed_tags(kind: str, files: Path, tmp_path: Path) -> None:
    settings = {"model.kind": kind, "train.steps": 2, "train.save_every": 2, "train.evaluate_every": 2}
    made = start(files, tmp_path / kind, settings)
    assert 0 <= made.outcome.evaluation["accuracy"] <= 1
    assert len(list(load(made.path).predict(files / "train.conllu"))) == 24


def test_other_data_under_the_same_name_are_refused(files: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.conllu"
    own.write_text(conllu(24))
    with pytest.raises(Cut):
        start(files, tmp_path / "run", data=own, on_step=at(5, crash))
    own.write_text(conllu(24, noun="PROPN"))
    with pytest.raises(UserError, match="not the data that this run began with"):
        resume(tmp_path / "run")


def test_from_the_command_line(files: Path, tmp_path: Path) -> None:
    options = [word for path, value in SETTINGS.items() for word in ("--set", f"{path}={value}")]
    said = call("train", "tagging", "--data", str(files / "train.conllu"), *options, "--out", str(tmp_path / "run"))
    assert said.code == 0, said.err
    assert "accuracy" in said.out
    assert "22 sentences, 110 words, 3 tags, 2 sentences held out" in said.err


# ------------------------------------------------------------------ evaluate


def test_figures_stand_beside_the_trivial_tagger(trained: Path, files: Path) -> None:
    said = call("evaluate", str(trained), "--json")
    assert said.code == 0, said.err
    found = json.loads(said.out)
    assert found["sentences"] == 6
    assert found["words"] == 30
    assert found["accuracy"] > 0.9
    assert found["lexicon_accuracy"] == 1.0
    assert sum(map(sum, found["confusion"])) == found["words"]
    assert sum(row[i] for i, row in enumerate(found["confusion"])) == round(found["accuracy"] * found["words"])
    assert len(found["tags"]) == len(found["confusion"])
    assert found["majority_accuracy"] == pytest.approx(0.4)
    assert found["new_words"] == 0
    assert found["new_word_accuracy"] is None
    assert found["span_f1"] is None
    table = call("evaluate", str(trained), "--data", str(files / "train.conllu"))
    assert "most frequent tag of the word" in table.out
    assert "24 sentences, 120 words, 0 of them new" in table.out


def test_new_words_and_new_tags_count(trained: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.conllu"
    other.write_text(conllu(4, noun="PROPN").replace("cat\tcat", "gnu\tgnu"))
    found = load(trained).evaluate(other)._asdict()
    assert found["unseen_tags"] == {"PROPN": 8}
    assert found["accuracy"] <= 12 / 20
    assert found["new_words"] > 0
    assert found["new_word_accuracy"] == 0.0  # all of them are of the tag that training never showed
    assert found["per_tag"]["PROPN"]["recall"] == 0
    assert math.isfinite(found["nats"])


def test_spans_are_scored_as_spans(span_run: Path, files: Path, tmp_path: Path) -> None:
    found = load(span_run).evaluate(files / "spans.txt")._asdict()
    assert found["span_f1"] > 0.9
    assert found["lexicon_span_f1"] == 1.0
    kept = (span_run / "metrics.jsonl").read_text()
    assert "validation_span_f1" in kept
    # A tag that marks no span makes spans meaningless there; single words still count.
    strange = tmp_path / "strange.txt"
    strange.write_text(spans(4).replace("today O", "today WHEN"))
    again = load(span_run).evaluate(strange)._asdict()
    assert again["span_f1"] is None
    assert again["unseen_tags"] == {"WHEN": 4}


# ------------------------------------------------------------------ predict


def test_a_conllu_file_comes_back_with_its_tags(trained: Path, tmp_path: Path) -> None:
    blank = tmp_path / "blank.conllu"
    text = conllu(5).replace("\tDET\t", "\t_\t").replace("\tNOUN\t", "\t_\t").replace("\tVERB\t", "\t_\t")
    blank.write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    said = call("predict", str(trained), str(blank), "--out", str(tmp_path / "out.conllu"))
    assert said.code == 0, said.err
    lines, before = (tmp_path / "out.conllu").read_text().split("\n"), text.split("\n")
    assert len(lines) == len(before)
    for line, old in zip(lines, before):
        cells, cells_before = line.split("\t"), old.split("\t")
        if cells_before[0].isdecimal():
            assert cells[3] in ("DET", "NOUN", "VERB")
            assert cells[:3] + cells[4:] == cells_before[:3] + cells_before[4:]
        else:
            assert line == old
    assert (tmp_path / "out.conllu").read_text() == conllu(5)  # so small a language is learnt


def test_json_holds_words_tags_and_how_sure_they_are(trained: Path, span_run: Path, files: Path) -> None:
    for run, file in ((trained, "train.conllu"), (span_run, "spans.txt")):
        said = call("predict", str(run), str(files / file), "--json")
        assert said.code == 0, said.err
        rows = [json.loads(line) for line in said.out.splitlines()]
        assert len(rows) in (20, 24)
        for row in rows:
            assert len(row["words"]) == len(row["tags"]) == len(row["probabilities"])
            assert all(0 < p <= 1 + 1e-6 for p in row["probabilities"])
    assert rows[0]["line"] == 3  # after -DOCSTART- and an empty line
    assert rows[1]["words"] == ["dog", "in", "New", "York", "today"]
    assert rows[1]["tags"] == ["O", "O", "B-loc", "I-loc", "O"]


def test_no_word_is_lost_however_long_the_sentence(span_run: Path, tmp_path: Path) -> None:
    file = tmp_path / "long.txt"
    file.write_text("\n".join(["Rome", "in"] * 2500) + "\n\n\n\nNew\nYork")
    lines = list(load(span_run).predict_lines(file))
    assert len(lines) == 5005
    assert [line.split()[0] for line in lines if line] == ["Rome", "in"] * 2500 + ["New", "York"]
    assert all(len(line.split()) == 2 for line in lines if line)
    rows = list(load(span_run).predict(file))
    assert [len(row["tags"]) for row in rows] == [5000, 2]


def test_a_file_without_a_sentence_gives_its_own_lines(trained: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty.conllu"
    empty.write_text("# nothing\n\n")
    assert list(load(trained).predict_lines(empty)) == ["# nothing", ""]
    assert list(load(trained).predict(empty)) == []


def test_standard_input_has_the_format_of_the_training_data(
    trained: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    piped = tmp_path / "piped"
    piped.write_text(conllu(2))
    with piped.open() as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        assert "\n".join(load(trained).predict_lines("-")) + "\n" == conllu(2)
    with piped.open() as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        assert [row["line"] for row in load(trained).predict("-")] == [3, 13]
    with piped.open() as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        assert load(trained).evaluate("-")._asdict()["sentences"] == 2
    with pytest.raises(UserError, match="cannot be learned from standard input"):
        train("tagging", data="-", out=tmp_path / "run", display=Silent())


# ------------------------------------------------------------------ mistakes


@pytest.mark.parametrize(
    ("settings", "text", "expected"),
    [
        ({}, "1\tcat\t_\tNOUN\n", "line 1: 4 columns, CoNLL-U has 10"),
        ({}, conllu(1).replace("\tVERB\t", "\t_\t"), "line 6: upos is unspecified"),
        ({"data.tag": "pos"}, conllu(2), "CoNLL-U has no column 'pos'"),
        ({}, "# only a comment\n", "holds no tagged sentence"),
        ({"data.format": "columns"}, "cat NOUN\nsees\n", "line 2: 1 columns, expected 2 as in line 1"),
        ({"data.format": "columns"}, "cat\nsees\n", "word and tag are both read from column 0"),
        (
            {"objective.kind": "crf", "data.format": "columns"},
            "a O\nb I-x\n\n" * 4 + "a B-x\n",
            "word 2 of the sentence has",
        ),
        ({"train.truncation": 8}, conllu(4), "train.truncation has no meaning here"),
        ({"reader.summary": "mean"}, conllu(4), "reader.summary has no meaning here"),
        ({"words.word_dropout": 1.0}, conllu(4), "words.word_dropout"),
        ({"objective.kind": "softmax"}, conllu(4), "objective.kind: 'softmax' is not known"),
    ],
    ids=str,
)
def test_mistakes_are_named(settings: dict[str, Any], text: str, expected: str, tmp_path: Path) -> None:
    file = tmp_path / "bad.conllu"
    file.write_text(text)
    merged = {**SETTINGS, "data.held_out": 0.5, **settings}
    options = [word for path, value in merged.items() for word in ("--set", f"{path}={value}")]
    said = call("train", "tagging", "--data", str(file), *options, "--out", str(tmp_path / "run"))
    assert said.code == 2
    assert expected in " ".join(said.err.split())
    assert not (tmp_path / "run").exists()


def test_a_broken_beginning_of_spans_can_be_mended(tmp_path: Path) -> None:
    file = tmp_path / "iob1.txt"
    file.write_text(spans(12).replace("B-loc", "I-loc"))
    settings = {**SETTINGS, "objective.kind": "crf", "data.scheme": "iob2"}
    made = train("tagging", settings=settings, data=file, out=tmp_path / "run", display=Silent())
    opened = load(made.path)
    assert isinstance(opened, TaggingRun)
    assert "B-loc" in opened.known.tags.names
