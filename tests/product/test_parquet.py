"""Parquet and Arrow files wherever a task reads rows: the same run as from a table of text."""

from pathlib import Path
from typing import Any

import pytest
from command import call

pa = pytest.importorskip("pyarrow")
from pyarrow import feather, ipc, parquet  # noqa: E402

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


@pytest.mark.parametrize("form", ["file", "stream", "feather"])
def test_arrow_in_its_three_forms(form: str, tmp_path: Path) -> None:
    table = pa.table(ROWS["classification"])
    path = tmp_path / ("rows.feather" if form == "feather" else "rows.arrow")
    if form == "feather":
        feather.write_feather(table, str(path))
    else:
        write = {"file": ipc.new_file, "stream": ipc.new_stream}[form]
        with write(str(path), table.schema) as file:
            file.write_table(table)
    settings = ("--set", "train.batch=4", "--set", "data.min_count=1", "--steps", "2", "--quiet")
    done = call("train", "classification", "--data", str(path), "--out", str(tmp_path / "run"), *settings)
    assert done.code == 0, done.err


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    path.write_bytes(b"PAR1 and nothing else")
    done = call("train", "classification", "--data", str(path), "--out", str(tmp_path / "run"))
    assert done.code == 2
    assert "cannot be loaded" in done.err
    missing = call("train", "classification", "--data", str(tmp_path / "no.parquet"), "--out", str(tmp_path / "run"))
    assert missing.code == 2
