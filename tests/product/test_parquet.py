"""Parquet and Arrow files in every task: the same run as from a table of text, or from a file for each document."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from command import call

import statewise as sw
from statewise.data import open_corpus, open_source, read_hub
from statewise.specs import DataSpec, UserError

pa = pytest.importorskip("pyarrow")
from pyarrow import feather, ipc, parquet  # noqa: E402

from statewise.data.columnar import read_texts, text_bytes  # noqa: E402

ROWS: dict[str, dict[str, list[Any]]] = {
    "classification": {"text": ["a good film", "a bad film"] * 12, "label": ["pos", "neg"] * 12},
    "tagging": {"tokens": [["a", "cat"], ["the", "dog"]] * 8, "tags": [["DET", "NOUN"]] * 16},
    "translation": {"source": [f"cats {n}" for n in range(20)], "target": [f"{n} cats" for n in range(20)]},
    "tree": {"tree": ["(0 (1 not) (1 good))", "(1 (1 very) (1 good))"] * 8},
    "forecasting": {"value": [float(n % 7) for n in range(200)]},
}
MORE = {
    "classification": ["data.min_count=1"],
    "tagging": ["data.word=tokens", "data.tag=tags"],
    "translation": ["data.source_column=source", "data.target_column=target", "decoding.watch=0"],
    "tree": [],
    "forecasting": ["forecast.context=14", "forecast.horizon=7"],
}


@pytest.mark.parametrize("task", ROWS)
def test_a_task_reads_parquet(task: str, tmp_path: Path) -> None:
    parquet.write_table(pa.table(ROWS[task]), tmp_path / "rows.parquet")
    settings = ["train.batch=4", "train.evaluate_every=2", *MORE[task]]
    done = call(
        "train", task, "--data", str(tmp_path / "rows.parquet"), "--steps", "2", "--out", str(tmp_path / "run"),
        "--quiet", *[word for one in settings for word in ("--set", one)],
    )  # fmt: skip
    assert done.code == 0, done.err
    assert call("evaluate", str(tmp_path / "run")).code == 0


def write(table: Any, form: str, folder: Path) -> Path:
    path = folder / f"rows.{form if form in ('parquet', 'feather') else 'arrow'}"
    if form == "parquet":
        parquet.write_table(table, path)
    elif form == "feather":
        feather.write_feather(table, str(path))
    else:
        new = {"file": ipc.new_file, "stream": ipc.new_stream}[form]
        with new(str(path), table.schema) as file:
            file.write_table(table, max_chunksize=3)
    return path


@pytest.mark.parametrize("form", ["file", "stream", "feather"])
def test_arrow_in_its_three_forms(form: str, tmp_path: Path) -> None:
    path = write(pa.table(ROWS["classification"]), form, tmp_path)
    settings = ("--set", "train.batch=4", "--set", "data.min_count=1", "--steps", "2", "--quiet")
    done = call("train", "classification", "--data", str(path), "--out", str(tmp_path / "run"), *settings)
    assert done.code == 0, done.err


def test_a_folder_of_parquet_files_is_one_table(tmp_path: Path) -> None:
    folder = tmp_path / "rows.parquet"
    folder.mkdir()
    for part in range(2):
        parquet.write_table(pa.table(ROWS["classification"]), folder / f"{part}.parquet")
    assert [row.text("text") for row in read_hub(folder, ["text"])] == ROWS["classification"]["text"] * 2


def test_a_row_task_says_how_to_name_a_column(tmp_path: Path) -> None:
    rows = {"verdict": ROWS["classification"]["label"], "review": ROWS["classification"]["text"]}
    path = write(pa.table(rows), "parquet", tmp_path)
    refused = call("train", "classification", "--data", str(path), "--out", str(tmp_path / "run"))
    assert refused.code == 2
    assert "--set data.text=review --set data.label=verdict" in refused.err


TEXTS = ["the cat sat on the mat", "", "the dog\r\nsat on the log é", "a cat and a dog"] * 5
SMALL = ("train.steps=3", "train.batch=2", "train.window=8", "train.truncation=8", "model.width=8", "seed=3")


def train(data: str | Path, out: Path, *settings: str) -> Any:
    words = [word for one in (*SMALL, *settings) for word in ("--set", one)]
    return call("train", "gru", "--data", str(data), "--out", str(out), "--quiet", *words)


@pytest.mark.parametrize("form", ["parquet", "file", "stream", "feather", "dataset"])
def test_a_row_is_a_document(form: str, tmp_path: Path) -> None:
    path: str | Path
    if form == "dataset":
        datasets = pytest.importorskip("datasets", reason="the extra `hub` is not installed")
        datasets.Dataset.from_dict({"text": TEXTS}).save_to_disk(str(tmp_path / "saved"))
        path = f"hub:{tmp_path / 'saved'}"
    else:
        path = write(pa.table({"id": range(len(TEXTS)), "text": TEXTS}), form, tmp_path)
    files = tmp_path / "files"
    files.mkdir()
    for number, text in enumerate(TEXTS):
        (files / f"{number:02}.txt").write_bytes(text.encode())
    assert list(open_source([str(path)]).pieces()) == list(open_source([str(files)]).pieces())
    assert open_source([str(path)]).size == len("".join(TEXTS).encode())
    runs = [tmp_path / "rows", tmp_path / "documents"]
    for data, run in zip((path, files), runs):
        done = train(data, run)
        assert done.code == 0, done.err
    facts = [json.loads((run / "environment.json").read_text())["corpus"]["sha256"] for run in runs]
    assert facts[0] == facts[1]
    assert (runs[0] / "model.safetensors").read_bytes() == (runs[1] / "model.safetensors").read_bytes()
    figures = [call("evaluate", str(runs[0]), "--data", str(data), "--json") for data in (path, files)]
    found = [json.loads(said.out)["perplexity"] for said in figures]
    assert found[0] == found[1] == sw.load(runs[1]).evaluate(path).perplexity


def test_a_resumed_run_wants_the_same_rows(tmp_path: Path) -> None:
    path = write(pa.table({"text": TEXTS}), "parquet", tmp_path)
    assert train(path, tmp_path / "run").code == 0
    more = ("train", "--resume", "--out", str(tmp_path / "run"), "--quiet", "--set")
    assert call(*more, "train.steps=5").code == 0
    write(pa.table({"text": TEXTS[:-1]}), "parquet", tmp_path)
    refused = call(*more, "train.steps=7")
    assert refused.code == 2
    assert "not the text that this run began with" in " ".join(refused.err.split())


def test_another_column_is_named(tmp_path: Path) -> None:
    rows = {"id": range(len(TEXTS)), "body": TEXTS, "both": [{"de": "eins", "en": text} for text in TEXTS]}
    path = write(pa.table(rows), "parquet", tmp_path)
    refused = train(path, tmp_path / "run")
    assert refused.code == 2
    assert "there is no column 'text'" in refused.err
    fix = next(line for line in refused.err.splitlines() if "--set" in line).rpartition("--set ")[2]
    assert fix == "data.text_column=body"
    assert train(path, tmp_path / "run", fix).code == 0
    expected = list(read_texts(path, "body"))
    assert list(read_texts(path, 1)) == list(read_texts(path, "both.en")) == expected


def test_data_in_memory_has_the_same_setting(tmp_path: Path) -> None:
    rows = {"first": ["no"] * len(TEXTS), "second": TEXTS}
    settings = {"train.batch": 2, "train.window": 8, "train.truncation": 8, "model.width": 8}
    with pytest.raises(UserError, match=r"data\.text_column"):
        sw.train("gru", data=rows, settings=settings, steps=1, out=tmp_path / "run")
    sw.train("gru", data=rows, settings={**settings, "data.text_column": "second"}, steps=1, out=tmp_path / "run")
    assert (tmp_path / "run" / "data.txt").read_bytes().count(b"the cat sat") == TEXTS.count(TEXTS[0])


def test_the_cache_knows_the_column(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("statewise.data.corpus.IN_MEMORY", 0)
    path = write(pa.table({"text": TEXTS, "upper": [text.upper() for text in TEXTS]}), "parquet", tmp_path)
    for _ in range(2):  # written, then read
        for column, prompt in (("text", "the cat"), ("upper", "THE CAT")):
            corpus = open_corpus(DataSpec(text=(str(path),), text_column=column), cache=tmp_path / "cache")
            assert corpus.tokenizer.decode(corpus.train.tokens[1 : len(prompt) + 1].tolist()) == prompt
    assert len(list((tmp_path / "cache").iterdir())) == 2


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ([1, 2], "holds int64, expected text"),
        (["a", None], "row 1: the text is missing"),
        (["a", "b\0c"], "row 1: character 1 of the text is zero"),
        (pa.array([b"a", b"\xff"]).view(pa.string()), "row 1: byte 0 of the text is not UTF-8"),
    ],
)
def test_a_cell_that_is_no_text_is_refused(cells: Any, reason: str, tmp_path: Path) -> None:
    path = write(pa.table({"text": cells}), "file", tmp_path)
    with pytest.raises(UserError, match=reason):
        list(open_source([str(path)]).pieces())


@pytest.mark.parametrize("form", ["parquet", "file", "stream"])
def test_a_large_column_is_not_read_whole(form: str, tmp_path: Path) -> None:
    rows, size = 4096, 8192
    texts = [os.urandom(size // 2).hex() for _ in range(rows)]
    path = write(pa.table({"text": texts}), form, tmp_path)
    before = pa.total_allocated_bytes()
    most = max(pa.total_allocated_bytes() for _ in read_texts(path, "text")) - before
    assert text_bytes(path, "text") == rows * size
    assert most < 0.75 * rows * size


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    path.write_bytes(b"PAR1 and nothing else")
    done = call("train", "classification", "--data", str(path), "--out", str(tmp_path / "run"))
    assert done.code == 2
    assert "cannot be loaded" in done.err
    missing = call("train", "classification", "--data", str(tmp_path / "no.parquet"), "--out", str(tmp_path / "run"))
    assert missing.code == 2
