"""Data that people hold in memory: every task and kind of object gives what the same content in a file gives."""

import csv
import io
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import datasets
import nltk
import numpy as np
import pandas
import pytest
import torch
from tiny_run import Cut, Heard, at, call, crash, environment

import statewise as sw
from statewise.data.memory_source import file_names
from statewise.specs import UserError
from statewise.tasks import Run, Trained
from statewise.training.progress import Silent

QUICK: dict[str, Any] = {
    "train.device": "cpu",
    "train.steps": 4,
    "train.batch": 4,
    "train.warmup": 1,
    "train.evaluate_every": 4,
    "train.save_every": 2,
}
WIDE = {"model.width": 8}
LANGUAGE = {**WIDE, "train.window": 8, "train.truncation": 8, "train.evaluate_tokens": 100}
CLASSES = {**WIDE, "model.embedding": 8, "data.min_count": 1}
SIDES = {
    "model.encoder.width": 8,
    "model.decoder.width": 8,
    "data.min_count": 1,
    "decoding.watch": 0,
    "decoding.beam": 1,
    "decoding.draws": 4,
}
AHEAD = {**WIDE, "forecast.context": 12, "forecast.horizon": 4}

TEXT = "the cat sat on the mat and the dog sat on the log. " * 20
DOCUMENTS = [TEXT[begin : begin + 90] for begin in range(0, 900, 90)]
REVIEWS = [
    (f"a {word} film,\nof {number}", label)
    for number, (word, label) in enumerate([("warm", "good"), ("dull", "bad")] * 8)
]
TEXTS, LABELS = map(list, zip(*REVIEWS))
NOISE = np.random.default_rng(0)
ROWS_NTC = NOISE.normal(size=(20, 6, 2)) + (np.arange(20) % 2)[:, None, None]
SIDES_N = ["down" if number % 2 else "up" for number in range(20)]
GRIDS_NHW = NOISE.normal(size=(20, 5, 4))
SENTENCES = [(["Anna", "sleeps", word], ["N", "V", "A"]) for word in ["well", "ill"] * 6]
TOKENS, TAGS = map(list, zip(*SENTENCES))
PAIRS = [(f"eine Katze {number}", f"the {number} cats") for number in range(16)]
SOURCES, TARGETS = map(list, zip(*PAIRS))
TREES = [f"({label} (1 not) ({1 - label} {word}))" for word, label in [("warm", 0), ("dull", 1)] * 8]
SERIES_T = np.sin(np.arange(160) / 3) + NOISE.normal(0, 0.1, 160)
SERIES_TC = np.stack([SERIES_T, 2 * SERIES_T + 1], axis=1)
HOURS = pandas.date_range("2024-01-01", periods=160, freq="h")
LOAD = pandas.DataFrame(SERIES_TC, columns=["load", "wind"], index=HOURS)


def polars() -> Any:
    return pytest.importorskip("polars", reason="polars is no dependency, not even for development")


def named_tags() -> datasets.Dataset:
    words, names = datasets.List(datasets.Value("string")), datasets.List(datasets.ClassLabel(names=["A", "N", "V"]))
    features = datasets.Features({"tokens": words, "ner_tags": names})
    rows = {"tokens": TOKENS, "ner_tags": [[1, 2, 0]] * len(TOKENS)}
    return datasets.Dataset.from_dict(rows, features=features)


def named_labels() -> datasets.Dataset:
    features = datasets.Features(
        {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["bad", "good"])}
    )
    return datasets.Dataset.from_dict(
        {"text": TEXTS, "label": [int(one == "good") for one in LABELS]}, features=features
    )


def lines(rows: Any) -> str:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue()


def archive(**arrays: Any) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


class Task(NamedTuple):
    """A recipe, a file with the data, and the same data as objects of all kinds."""

    recipe: str
    settings: dict[str, Any]
    file: str
    content: str | bytes | list[str]  # of a list, each is a file in a folder
    objects: dict[str, Callable[[], Any]]


TASKS = {
    "text": Task("lstm", LANGUAGE, "text.txt", TEXT, {"string": lambda: TEXT, "list of one": lambda: [TEXT]}),
    "documents": Task(
        "lstm",
        LANGUAGE,
        "documents",
        DOCUMENTS,
        {
            "list": lambda: DOCUMENTS,
            "frame": lambda: pandas.DataFrame({"n": range(len(DOCUMENTS)), "content": DOCUMENTS}),
            "column": lambda: pandas.Series(DOCUMENTS),
            "dataset": lambda: datasets.Dataset.from_dict({"text": DOCUMENTS}),
        },
    ),
    "classification": Task(
        "classification",
        CLASSES,
        "reviews.csv",
        lines([("text", "label"), *REVIEWS]),
        {
            "pairs": lambda: REVIEWS,
            "lists": lambda: [list(pair) for pair in REVIEWS],
            "two columns": lambda: (pandas.Series(TEXTS), np.array(LABELS)),
            "dict": lambda: {"text": TEXTS, "label": LABELS},
            "records": lambda: [{"text": text, "label": label} for text, label in REVIEWS],
            "frame": lambda: pandas.DataFrame(REVIEWS, columns=["review", "sentiment"]),
            "frame by number": lambda: pandas.DataFrame({"id": range(16), "a": TEXTS, "b": LABELS}),
            "polars": lambda: polars().DataFrame({"text": TEXTS, "label": LABELS}),
            "dataset": named_labels,
        },
    ),
    "values": Task(
        "classification",
        {**WIDE, "data.kind": "values"},
        "rows.npz",
        archive(x=ROWS_NTC, label=SIDES_N),
        {
            "arrays": lambda: (ROWS_NTC, np.array(SIDES_N)),
            "tensor": lambda: (torch.from_numpy(ROWS_NTC), SIDES_N),
            "dict": lambda: {"x": ROWS_NTC, "y": SIDES_N},
            "rows": lambda: list(zip(ROWS_NTC, SIDES_N)),
            "nested lists": lambda: (ROWS_NTC.tolist(), SIDES_N),
        },
    ),
    "values of a frame": Task(
        "classification",
        {**WIDE, "data.kind": "values"},
        "wide.csv",
        lines([("y", *"abcdef"), *((label, *row) for label, row in zip(SIDES_N, ROWS_NTC[:, :, 0].tolist()))]),
        {"frame": lambda: pandas.DataFrame(ROWS_NTC[:, :, 0]).assign(y=SIDES_N)},
    ),
    "grid": Task(
        "digits",
        WIDE,
        "grids.npz",
        archive(x=GRIDS_NHW, y=np.arange(20) % 2),
        {
            "arrays": lambda: (GRIDS_NHW, np.arange(20) % 2),
            "tensor": lambda: (torch.from_numpy(GRIDS_NHW), [0, 1] * 10),
        },
    ),
    "tagging": Task(
        "tagging",
        {**WIDE, "words.width": 8},
        "tags.tsv",
        "\n".join("".join(f"{word}\t{tag}\n" for word, tag in zip(*sentence)) for sentence in SENTENCES),
        {
            "pairs": lambda: SENTENCES,
            "frame": lambda: pandas.DataFrame({"words": TOKENS, "tags": TAGS}),
            "polars": lambda: polars().DataFrame({"tokens": TOKENS, "tags": TAGS}),
            "dataset": named_tags,
        },
    ),
    "translation": Task(
        "translation",
        SIDES,
        "pairs.tsv",
        "".join(f"{source}\t{target}\n" for source, target in PAIRS),
        {
            "pairs": lambda: PAIRS,
            "two columns": lambda: (SOURCES, TARGETS),
            "frame": lambda: pandas.DataFrame({"n": SOURCES, "target": TARGETS, "source": SOURCES}),
            "frame of two": lambda: pandas.DataFrame({"de": SOURCES, "en": TARGETS}),
            "dataset": lambda: datasets.Dataset.from_dict(
                {"translation": [{"de": source, "en": target} for source, target in PAIRS]}
            ),
        },
    ),
    "tree": Task(
        "tree",
        {**WIDE, "model.embedding": 8},
        "trees.txt",
        "\n".join(TREES),
        {
            "strings": lambda: TREES,
            "over lines": lambda: [tree.replace(" (", "\n  (") for tree in TREES],
            "one string": lambda: "\n\n".join(TREES),
            "nltk": lambda: [nltk.Tree.fromstring(tree) for tree in TREES],
            "frame": lambda: pandas.DataFrame({"n": range(16), "tree": TREES}),
        },
    ),
    "series": Task(
        "forecasting",
        AHEAD,
        "series.npz",
        archive(values=SERIES_TC),
        {
            "array": lambda: SERIES_TC,
            "tensor": lambda: torch.from_numpy(SERIES_TC),
            "nested lists": lambda: SERIES_TC.tolist(),
            "frame of numbers": lambda: pandas.DataFrame(SERIES_TC),
        },
    ),
    "one channel": Task(
        "forecasting",
        AHEAD,
        "series.csv",
        lines([["load"], *([value] for value in SERIES_T.tolist())]),
        {"list": lambda: SERIES_T.tolist(), "column": lambda: pandas.Series(SERIES_T, name="load")},
    ),
    "several series": Task(
        "forecasting",
        AHEAD,
        "several.npz",
        archive(**{"0": SERIES_T, "1": SERIES_T[:120]}),
        {"list of arrays": lambda: [SERIES_T, SERIES_T[:120]]},
    ),
    "dates": Task(
        "forecasting",
        AHEAD,
        "dates.csv",
        LOAD.rename_axis("date").to_csv(),
        {
            "index": lambda: LOAD,
            "named index": lambda: LOAD.rename_axis("when"),
            "periods": lambda: LOAD.set_axis(HOURS.to_period("h")),
            "column": lambda: LOAD.reset_index(names="time"),
            "polars": lambda: polars().DataFrame({"time": HOURS.to_list(), "load": SERIES_T, "wind": SERIES_TC[:, 1]}),
            "dataset": lambda: datasets.Dataset.from_pandas(LOAD.reset_index(names="date")),
        },
    ),
}
KINDS = [(task, kind) for task in TASKS for kind in TASKS[task].objects]
NUMBERED = {"data.text": 1, "data.label": 2}  # for "frame by number"


def learn(task: Task, data: Any, out: Path, settings: dict[str, Any] | None = None, **more: Any) -> Trained:
    merged = {**QUICK, **task.settings, **(settings or {})}
    return sw.train(task.recipe, settings=merged, data=data, out=out, **{"display": Silent(), **more})


class World:
    """A run of each task that learned from a file, made once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._trained: dict[str, Trained] = {}

    def file(self, name: str) -> Path:
        path, content = self.folder / TASKS[name].file, TASKS[name].content
        if isinstance(content, list):
            path.mkdir(exist_ok=True)
            for number, one in enumerate(content):
                (path / f"{number:03}.txt").write_text(one)
        elif not path.exists():
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def trained(self, name: str) -> Trained:
        if name not in self._trained:
            named = {"data.label": "y"} if name == "values of a frame" else {}
            self._trained[name] = learn(TASKS[name], self.file(name), self.folder / "runs" / name, named)
        return self._trained[name]

    def run(self, name: str) -> Run:
        return sw.load(self.trained(name).path, device="cpu")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("world"))


# -------------------------------------------------------------------- the same content, the same weights


def by_day() -> Iterator[Any]:
    """Every task and every kind of object by day, all pairs at night."""
    tasks, kinds = set(), set()
    for task, kind in KINDS:
        seen = task in tasks and kind in kinds
        tasks.add(task)
        kinds.add(kind)
        yield pytest.param(task, kind, marks=[pytest.mark.slow] if seen else [])


@pytest.mark.parametrize(("name", "kind"), [*by_day()], ids=lambda part: part.replace(" ", "-"))
def test_memory_gives_the_weights_and_the_metrics_that_a_file_gives(
    name: str, kind: str, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    task, before = TASKS[name], world.trained(name)
    data = task.objects[kind]()
    made = learn(task, data, Path("run"), NUMBERED if kind == "frame by number" else None)
    assert made.outcome.weights_sha256 == before.outcome.weights_sha256

    spec = tomllib.loads(Path("run/run.toml").read_text())
    (kept,) = spec["data"]["text" if task.recipe == "lstm" else "train"]
    assert Path("run", kept).is_file()
    assert not Path(kept).is_absolute()

    shutil.move("run", "elsewhere")
    monkeypatch.chdir("/")
    run = sw.load(tmp_path / "elsewhere", device="cpu")
    assert str(run.evaluate()) == str(world.run(name).evaluate()), "what was held out is read from the moved folder"
    assert str(run.evaluate(data)) == str(run.evaluate([kept_file(tmp_path, kept)]))


def kept_file(folder: Path, name: str) -> Path:
    return folder / "elsewhere" / name


def test_numbers_make_a_classifier_of_numbers_and_it_says_so(tmp_path: Path) -> None:
    heard = Heard()
    settings = {**QUICK, **WIDE}
    made = sw.train("classification", data=(ROWS_NTC, SIDES_N), settings=settings, out=tmp_path / "run", display=heard)
    assert made.load().spec.data.kind == "values"  # type: ignore[union-attr]
    assert any("20 rows" in line and "data.kind is 'values'" in line for line in heard.lines)


def test_the_columns_that_were_chosen_are_said_and_kept(world: World, tmp_path: Path) -> None:
    heard, frame = Heard(), TASKS["classification"].objects["frame"]()
    run = learn(TASKS["classification"], frame, tmp_path / "run", display=heard).load()
    assert any("text from column 'review', label from column 'sentiment'" in line for line in heard.lines)
    assert (run.spec.data.text, run.spec.data.label) == ("review", "sentiment")  # type: ignore[union-attr]
    (tmp_path / "more.csv").write_text("sentiment,review\nbad,a dull film\n")
    assert run.evaluate(tmp_path / "more.csv").rows == 1  # type: ignore[attr-defined]
    assert run.predict(frame) == run.predict(TEXTS)


# -------------------------------------------------------------------- the run goes on


@pytest.mark.parametrize("name", ["documents", "classification", "values", "tagging", "translation", "tree", "dates"])
def test_a_run_from_memory_is_resumed_bit_for_bit_after_it_was_moved(name: str, world: World, tmp_path: Path) -> None:
    data = next(iter(TASKS[name].objects.values()))()
    with pytest.raises(Cut):
        learn(TASKS[name], data, tmp_path / "cut", on_step=at(3, crash))
    shutil.move(tmp_path / "cut", tmp_path / "moved")
    said = call("train", "--resume", "--out", str(tmp_path / "moved"), "--quiet")
    assert said.code == 0, said.err
    assert world.trained(name).outcome.weights_sha256[:16] in said.out


def test_the_recipe_of_a_run_finds_its_data(world: World, tmp_path: Path) -> None:
    learn(TASKS["text"], TEXT, tmp_path / "first")
    said = call("train", str(tmp_path / "first" / "run.toml"), "--out", str(tmp_path / "second"), "--quiet")
    assert said.code == 0, said.err
    assert world.trained("text").outcome.weights_sha256[:16] in said.out


def test_a_resumed_run_takes_no_other_data(world: World, tmp_path: Path) -> None:
    learn(TASKS["text"], TEXT, tmp_path / "run")
    with pytest.raises(UserError, match="leave data out"):
        sw.train(resume=True, out=tmp_path / "run", data=TEXT)
    kept = tmp_path / "run" / "data.txt"
    kept.write_text(kept.read_text() + "and more of the mat")
    with pytest.raises(UserError, match="not the text that this run began with"):
        sw.train(resume=True, out=tmp_path / "run", settings={"train.steps": 6}, display=Silent())


def test_what_was_piped_in_moves_with_its_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard input is kept in the folder as well, under a name that is relative to it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TEXT.encode())))
    options = [f"--set={path}={value}" for path, value in {**QUICK, **LANGUAGE}.items()]
    said = call("train", "lstm", "--text", "-", *options, "--out", "runs/piped", "--quiet")
    assert said.code == 0, said.err
    shutil.move("runs/piped", "moved")
    assert sw.load("moved").evaluate().tokens > 0  # type: ignore[attr-defined]
    said = call("train", "--resume", "--out", "moved", "--set", "train.steps=6", "--quiet")
    assert said.code == 0, said.err


@pytest.mark.slow
def test_a_study_of_data_in_memory(tmp_path: Path) -> None:
    study = {
        "title": "Two",
        "question": "Which?",
        "seeds": 1,
        "metric": "accuracy",
        "better": "higher",
        "base": {"task": "classification", "train": {"device": "cpu", "steps": 2, "batch": 4}, "model": {"width": 8}},
        "budget": {"kind": "none"},
        "entry": [{"name": kind, "settings": {"model.kind": kind}} for kind in ("gru", "lstm")],
    }
    frame = pandas.DataFrame(REVIEWS, columns=["review", "sentiment"])
    found = sw.compare(study, data=frame, out=tmp_path / "study", static=True, workers=1)
    assert {row["entry"] for row in found.table} == {"gru", "lstm"}
    assert found.failed == 0
    again = sw.compare(study, data=frame, out=tmp_path / "study", static=True, workers=1)
    assert [one.key for one in again.parts[0].ran.found] == [one.key for one in found.parts[0].ran.found]
    base = tomllib.loads((tmp_path / "study" / "study.toml").read_text())["base"]
    assert base["data"]["text"] == "review"


# -------------------------------------------------------------------- a list in, a list out


def test_a_classifier_answers_with_labels(world: World) -> None:
    run = world.run("classification")
    (world.folder / "unlabelled.jsonl").write_text('{"text": "a warm film"}\n{"text": "a dull film"}\n')
    rows = run.predict(world.folder / "unlabelled.jsonl")
    labels = run.predict(["a warm film", "a dull film"])
    assert labels == [row["label"] for row in rows]
    assert set(labels) <= {"good", "bad"}
    assert [run.predict("a warm film"), run.predict("a dull film")] == labels
    assert run.predict(("a warm film", "a dull film")) == labels
    assert run.predict(pandas.DataFrame({"text": ["a warm film", "a dull film"], "label": ["?", "?"]})) == labels
    assert run.predict(pandas.Series(["a warm film", "a dull film"])) == labels
    assert run.predict(datasets.Dataset.from_dict({"text": ["a warm film", "a dull film"]})["text"]) == labels
    for number, (row, of_file) in enumerate(zip(run.predict_rows(["a warm film", "a dull film"]), rows, strict=True)):
        assert row["row"] == number
        assert row["probabilities"] == pytest.approx(of_file["probabilities"])
    assert run.predict("很好看的电影") in {"good", "bad"}, "a text without spaces"


def test_a_classifier_of_numbers_tells_one_row_from_several(world: World) -> None:
    run = world.run("values")
    labels = run.predict(ROWS_NTC)
    assert len(labels) == 20
    assert run.predict(ROWS_NTC[3]) == labels[3]
    assert run.predict(torch.from_numpy(ROWS_NTC)) == run.predict(list(ROWS_NTC)) == labels
    narrow = world.run("values of a frame")
    assert narrow.predict(ROWS_NTC[:, :, 0])[2] == narrow.predict(ROWS_NTC[2, :, 0])
    assert narrow.predict(pandas.DataFrame(ROWS_NTC[:, :, 0])) == narrow.predict(ROWS_NTC[:, :, 0])
    grids = world.run("grid")
    assert grids.predict(GRIDS_NHW)[1] == grids.predict(GRIDS_NHW[1])


def test_a_tagger_answers_with_tags(world: World) -> None:
    run = world.run("tagging")
    tags = run.predict([["Anna", "sleeps"], ["well"], []])
    assert [len(one) for one in tags] == [2, 1, 0]
    assert run.predict("Anna sleeps") == tags[0]
    assert run.predict(["Anna sleeps", "well"]) == tags[:2]
    assert run.predict(pandas.DataFrame({"tokens": [["Anna", "sleeps"], ["well"]]})) == tags[:2]
    assert [len(tags) for tags in run.predict([["-DOCSTART-", "a\tb"]])] == [2], "every word gets a tag"
    assert [len(tags) for tags in run.predict(("-DOCSTART- x", "y z"))] == [2, 2], "every word gets a tag"
    with pytest.raises(UserError, match="one sentence, or 2 of one word each"):
        run.predict(["Anna", "sleeps"])


def test_a_translator_answers_with_texts(world: World) -> None:
    run = world.run("translation")
    written = run.predict(SOURCES[:3])
    assert written == run.translate(SOURCES[:3])  # type: ignore[attr-defined]
    assert run.predict(SOURCES[0]) == written[0]
    assert run.predict(pandas.DataFrame({"source": SOURCES[:3], "other": TARGETS[:3]})) == written
    assert [row["translation"] for row in run.predict_rows(SOURCES[:3])] == written


def test_a_tree_is_answered_with_a_tree(world: World) -> None:
    run = world.run("tree")
    trees = run.predict(TREES[:3])
    assert trees == list(run.predict_lines(world.file("tree")))[:3]
    assert run.predict(TREES[0]) == run.predict(nltk.Tree.fromstring(TREES[0])) == trees[0]
    with pytest.raises(UserError, match="row 0 holds 2 trees"):
        run.predict(" ".join(TREES[:2]))


def test_a_forecast_has_the_form_of_the_series(world: World) -> None:
    run = world.run("series")
    (mean_HC, of_file) = run.predict(SERIES_TC), run.predict(world.file("series"))
    assert mean_HC.shape == (4, 2)
    assert mean_HC.ravel().tolist() == [row["mean"] for row in of_file]
    assert torch.equal(run.predict(torch.from_numpy(SERIES_TC)), torch.from_numpy(mean_HC))
    assert run.predict(torch.from_numpy(SERIES_TC).float()).dtype == torch.float32
    assert run.predict(np.stack([SERIES_TC] * 3)).shape == (3, 4, 2)
    several = run.predict([SERIES_TC, SERIES_TC[:50]])
    assert [one.shape for one in several] == [(4, 2), (4, 2)]
    assert several[0].tolist() == mean_HC.tolist()
    single = world.run("one channel")
    assert single.predict(SERIES_T).shape == (4,)
    assert single.predict(SERIES_T[:, None]).shape == (4, 1)
    assert next(iter(single.predict_rows(SERIES_T)))["channel"] == "load"


def test_a_forecast_of_a_frame_is_a_frame(world: World) -> None:
    run = world.run("dates")
    ahead = run.predict(LOAD)
    assert list(ahead.columns) == ["load", "wind"]
    assert list(ahead.index) == list(pandas.date_range(HOURS[-1], periods=5, freq="h")[1:])
    assert ahead.to_numpy().tolist() == run.predict(SERIES_TC).tolist()
    zoned = run.predict(LOAD.tz_localize("Asia/Tokyo"))
    assert list(zoned.index) == list(ahead.index.tz_localize("Asia/Tokyo"))
    assert list(run.predict(LOAD.set_axis(HOURS.to_period("h"))).index) == list(ahead.index.to_period("h"))
    words = LOAD.reset_index(names="date").assign(date=lambda frame: frame.date.dt.strftime("%Y-%m-%d %H:%M"))
    assert list(run.predict(words).date) == list(ahead.index.strftime("%Y-%m-%d %H:%M"))
    rows = run.predict(datasets.Dataset.from_pandas(LOAD.reset_index(names="date")))
    assert isinstance(rows, datasets.Dataset)
    assert rows["load"][:] == ahead.load.tolist()
    alone = world.run("one channel").predict(pandas.Series(SERIES_T, index=HOURS, name="load"))
    assert isinstance(alone, pandas.Series)
    assert (alone.name, list(alone.index)) == ("load", list(ahead.index))


def test_a_forecast_of_a_polars_frame_is_one(world: World) -> None:
    frame = TASKS["dates"].objects["polars"]()
    ahead = world.run("dates").predict(frame)
    assert ahead.columns == ["time", "load", "wind"]
    assert ahead["time"].to_list() == list(pandas.date_range(HOURS[-1], periods=5, freq="h")[1:])


def test_holes_of_a_frame_are_filled(world: World) -> None:
    holed = LOAD.copy()
    holed.iloc[70, 0] = np.nan
    (row,) = world.run("dates").interpolate(holed)
    assert (row["channel"], row["time"]) == ("load", "2024-01-03T22:00:00")
    assert row["mean"] == pytest.approx(holed.iloc[[69, 71], 0].mean(), abs=3)


def test_a_language_model_does_not_predict(world: World) -> None:
    assert not hasattr(world.run("text"), "predict")
    assert world.run("text").evaluate(TEXT[:200]).tokens == 201  # type: ignore[attr-defined]


# -------------------------------------------------------------------- what cannot be learned from


NAN = float("nan")
BAD: dict[str, tuple[str, Any, tuple[str, ...]]] = {
    "nothing": ("classification", [], ("empty list",)),
    "texts alone": ("classification", ["a b", "c d"], ("row 0", "'a b'", "(text, label)")),
    "mixed rows": ("classification", [("a b", "x"), 3], ("row 1", "3 (int)", "(text, label)")),
    "three cells": ("classification", [("a b", "x", 1)], ("row 0", "(text, label)")),
    "no text": ("classification", [("a b", "x"), (None, "y")], ("row 1", "text is missing")),
    "nan text": ("classification", [("a b", "x"), (NAN, "y")], ("row 1", "text is missing")),
    "a number as text": ("classification", [("a b", "x"), (3.5, "y")], ("row 1", "3.5 (float)", "string")),
    "no label": ("classification", [("a b", "x"), ("c d", None)], ("row 1", "label is missing")),
    "nan label": ("classification", [("a b", "x"), ("c d", NAN)], ("row 1", "label is missing")),
    "half a label": ("classification", [("a b", 0.5)], ("row 0", "0.5", "whole number")),
    "empty text": ("classification", [("a b", "x"), (" ", "y")], ("row 1", "text is empty")),
    "half a character": ("classification", [("a \ud800", "x")], ("row 0", "half a character")),
    "unequal columns": ("classification", {"text": ["a"], "label": ["x", "y"]}, ("'text' has 1", "'label' has 2")),
    "unequal lists": ("classification", (["a b"], ["x", "y"]), ("1 texts", "2 labels")),
    "other keys": ("classification", [{"text": "a", "label": "b"}, {"text": "a"}], ("row 1", "text, label")),
    "a text": ("classification", "a great film", ("row 0", "(text, label)")),
    "an object": ("classification", 7, ("type int", "DataFrame")),
    "bytes": ("classification", b"a b", ("type bytes",)),
    "an empty frame": ("classification", pandas.DataFrame({"text": [], "label": []}), ("no rows",)),
    "no column": (
        "classification",
        pandas.DataFrame({"a": ["x"], "b": ["y"]}),
        ("a, b", "holds the text", 'settings={"data.text": "a"}'),
    ),
    "two that fit": (
        "classification",
        pandas.DataFrame({"text": ["x"], "stars": [1], "topic": [2]}),
        ("holds the label", 'settings={"data.label":'),
    ),
    "numbers in a frame": ("classification", pandas.DataFrame({"a": [1.0]}), ('settings={"data.kind": "values"}',)),
    "two of a name": (
        "classification",
        pandas.DataFrame([["a", "b"]], columns=["text", "text"]),
        ("two columns 'text'",),
    ),
    "several splits": ("classification", datasets.DatasetDict({"train": named_labels()}), ("data['train']",)),
    "fewer labels": ("classification", (ROWS_NTC, SIDES_N[:5]), ("20 rows", "5 labels")),
    "ragged rows": ("classification", ([ROWS_NTC[0], ROWS_NTC[1][:3]], [0, 1]), ("row 1", "[3, 2]", "[6, 2]")),
    "complex rows": ("classification", (ROWS_NTC.astype(complex), SIDES_N), ("complex128", "[N, T]")),
    "rows of four axes": ("classification", (np.zeros((2, 2, 2, 2)), [0, 1]), ("[2, 2, 2, 2]", "[N, T, C]")),
    "a hole in rows": (
        "classification",
        (np.where(ROWS_NTC[3, 0, 0] == ROWS_NTC, NAN, ROWS_NTC), SIDES_N),
        ("row 3", "not finite"),
    ),
    "fewer tags": ("tagging", [(["a", "b"], ["N"])], ("row 0", "2 tokens", "1 tags")),
    "a sentence as text": ("tagging", [("a b", ["N", "V"])], ("row 0", "'a b'", "list of strings")),
    "pairs of words": ("tagging", [[("a", "N"), ("b", "V"), ("c", "V")]], ("row 0", "(tokens, tags)")),
    "an empty token": ("tagging", [*SENTENCES, (["a", ""], ["N", "V"])], ("row 12", "empty")),
    "a missing token": ("tagging", [(["a", None], ["N", "V"])], ("row 0: token 1", "missing")),
    "sources alone": ("translation", SOURCES, ("row 0", "(source, target)")),
    "an empty side": ("translation", [*PAIRS, ("a", "")], ("row 16", "target is empty")),
    "which language": (
        "translation",
        datasets.Dataset.from_dict({"id": ["1"], "translation": [{"de": "a", "en": "b"}]}),
        ("translation.de, translation.en", 'settings={"data.source_column":'),
    ),
    "an open tree": ("tree", [*TREES, "(1 a"], ("row 16", "never closed")),
    "two trees": ("tree", ["(1 a) (0 b)"], ("row 0", "2 trees")),
    "no tree": ("tree", ["no tree"], ("row 0", "outside any tree")),
    "a node without a word": ("tree", [*TREES, "(1 (0 a) (b))"], ("row 16", "neither children nor a word")),
    "series of four axes": ("series", np.zeros((2, 3, 4, 5)), ("[2, 3, 4, 5]", "[T, C]")),
    "complex series": ("series", SERIES_T.astype(complex), ("complex128",)),
    "rows of ids": ("values", ([[1, 2, 3], [4, 5]], ["a", "b"]), ("row 1 has shape [2]", "' '.join(map(str, row))")),
    "one-hot labels": ("values", (np.zeros((3, 4)), np.eye(3)), ("the labels are", "y.argmax(1)")),
    "an object of another library": ("series", object(), ("type object", "series.to_dataframe()")),
    "words as series": ("series", np.array(["a", "b"]), ("ndarray", "[T, C]")),
    "a word in a series": ("series", [1.0, "a", 2.0], ("row 1", "'a'")),
    "an infinite value": ("series", np.array([1.0, np.inf] * 40), ("infinite", "row 1")),
    "a column of words": ("series", LOAD.assign(city="x"), ("row 0", "'city'", "not a number")),
    "a time twice": ("series", pandas.concat([LOAD, LOAD]), ("row 0 and row 160", "same time")),
    "unequal channels": ("series", [SERIES_TC, SERIES_T], ("columns",)),
    "an empty text": ("text", "  ", ("empty string",)),
    "a missing document": ("text", ["a b", None], ("row 1", "text is missing")),
    "a zero": ("text", ["a b", "c\0d"], ("row 1", "character 1", "zero")),
    "one short text": ("text", ["abc"], ("larger than the training text",)),
    "no text column": ("text", pandas.DataFrame({"a": ["x y"], "b": ["x y"]}), ("a, b", '"data.text_column": "a"')),
}


@pytest.mark.parametrize("case", BAD, ids=lambda case: case.replace(" ", "-"))
def test_bad_data_is_refused_by_its_row_and_leaves_nothing_behind(case: str, tmp_path: Path) -> None:
    name, data, said = BAD[case]
    task = TASKS[name]
    settings = {path: value for path, value in task.settings.items() if path != "data.kind"}
    with pytest.raises(UserError) as error:
        learn(task._replace(settings=settings), data, tmp_path / "run")
    for words in said:
        assert words in str(error.value)
    assert str(tmp_path) not in str(error.value), "people never saw the file"
    assert not (tmp_path / "run").exists()


def test_bad_data_for_a_run(world: World) -> None:
    run = world.run("classification")
    for data, said in [
        (["a b", None], "row 1: the text is missing"),
        ([("a b", "good")], r"row 0: the text is \('a b', 'good'\) \(tuple\)"),
        ([], "empty list"),
        (ROWS_NTC, "classifies texts"),
        (pandas.DataFrame({"a": ["x y"], "b": ["x y"]}), "rename that column to 'text'"),
    ]:
        with pytest.raises(UserError, match=said):
            run.predict(data)
    with pytest.raises(UserError, match=r"row 0 is 'a b' \(str\), expected \(text, label\)"):
        run.evaluate(["a b"])
    with pytest.raises(UserError, match="sequences of numbers"):
        world.run("values").predict(["a b"])
    with pytest.raises(UserError, match=r"shape \[160\], but this run forecasts 2 channels"):
        world.run("series").predict(SERIES_T)
    with pytest.raises(UserError, match="training had 2 columns"):
        world.run("dates").predict(LOAD[["load"]])


# -------------------------------------------------------------------- files, or data?


def test_what_is_a_file_and_what_is_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.txt", "with space.txt", "corpus"):
        Path(name).write_text("x")
    files: list[Any] = [
        "a.txt", "corpus", "with space.txt", Path("corpus"), "-", "hub:imdb:train", "x.npz:a:b",
        ["a.txt", "with space.txt"], [Path("corpus")], [Path("missing"), "a.txt"], ("a.txt",),
    ]  # fmt: skip
    for data in files:
        names = [str(one) for one in data] if isinstance(data, list | tuple) else [str(data)]
        assert file_names(data) == names
    held: list[Any] = [
        "a great film", "two\nlines", "hub: the centre", "great!", "很好看", "acgt" * 100, ["awesome"], ["great film"],
        ["and/or", "a b"], [], [("a", "b")], {"text": ["a.txt"]}, np.zeros(3), LOAD,
        nltk.Tree("1", ["and/or"]),
    ]  # fmt: skip
    for data in held:
        assert file_names(data) is None
    for data, said in [
        ("awesome", r'\["awesome"\] for a text, Path\("awesome"\) for a file'),
        ("missing.txt", r"does not exist"),
        (["a.txt", "missing.txt"], r"'missing.txt' does not exist"),
        ("nowhere/corpus", r'Path\("\.\.\."\)'),
        (["corpus"], r'\{"text": \["\.\.\."\]\} for texts'),
        ("", "empty string"),
    ]:
        with pytest.raises(UserError, match=said):
            file_names(data)


def test_libraries_of_frames_are_not_imported() -> None:
    code = (
        "import sys; from statewise.data.memory_source import memory_file; from statewise.specs import parse_spec\n"
        "memory_file(parse_spec({'task': 'classification'}), [('a b', 'x')])\n"
        "sys.exit(sorted({'pandas', 'polars', 'datasets', 'nltk'} & sys.modules.keys()) or None)"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
