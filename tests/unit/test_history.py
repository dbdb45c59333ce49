"""The table of a run's metrics: rows by step, columns by name, and the learning curve."""

import json
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from statewise.specs import UserError
from statewise.training.history import History, read_history

ROWS: list[dict[str, Any]] = [
    {"step": 2, "loss": 3.0, "lr": 0.001, "tokens": 64},
    {"step": 4, "loss": 2.5, "lr": 0.002, "tokens": 128},
    {"step": 4, "validation_nats": 2.75},
    {"step": 6, "loss": 2.25, "lr": 0.001, "tokens": 1920},
]


def test_rows_of_one_step_are_merged_and_columns_are_aligned() -> None:
    history = History(ROWS)
    assert history.columns == ["step", "loss", "lr", "tokens", "validation_nats"]
    assert len(history) == 3
    assert history["step"] == [2, 4, 6]
    assert history["validation_nats"] == [None, 2.75, None]
    assert history.curve("validation_nats") == [(4, 2.75)]
    assert history[1]["loss"] == 2.5
    assert [row["step"] for row in history] == [row["step"] for row in history[:]]


def test_a_wrong_column_names_the_right_one() -> None:
    with pytest.raises(UserError, match="'los'") as caught:
        History(ROWS)["los"]
    assert "loss" in str(caught.value.fix)


def test_it_prints_a_table_with_the_middle_left_out() -> None:
    assert repr(History(ROWS, name="runs/x")).splitlines() == [
        "History of 3 steps of runs/x",
        "step  loss     lr  tokens  validation_nats",
        "   2     3  0.001      64                –",
        "   4   2.5  0.002     128             2.75",
        "   6  2.25  0.001   1,920                –",
    ]
    long = repr(History([{"step": step, "loss": 1.0} for step in range(100)])).splitlines()
    assert len(long) == 2 + 4 + 1 + 4
    assert long[-1].split() == ["99", "1"]


def test_the_curve_has_both_losses_with_titles_and_units(tmp_path: Path) -> None:
    figure = History(ROWS).figure()
    assert [(one.name, one.x, one.y) for one in figure.series] == [
        ("training", (2.0, 4.0, 6.0), (3.0, 2.5, 2.25)),
        ("validation", (4.0,), (2.75,)),
    ]
    assert (figure.x.label, figure.y.label) == ("step", "loss (nats)")
    assert History(ROWS, unit="squared_error").figure().y.label == "loss (squared error)"
    drawn = ElementTree.fromstring(History(ROWS).plot(tmp_path / "curve.svg").read_text())
    written = [text.text for text in drawn.iter() if text.tag.endswith("text")]
    assert {"step", "loss (nats)", "training", "validation"} <= set(written)
    assert "validation,4,2.75" in History(ROWS).plot(tmp_path / "curve.csv").read_text()
    assert History(ROWS).plot(tmp_path / "curve.png").read_bytes()[:4] == b"\x89PNG"
    assert History(ROWS)._repr_html_().count("<svg") == 1


def test_what_cannot_be_drawn_says_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"curve\.gif"):
        History(ROWS).plot(tmp_path / "curve.gif")
    with pytest.raises(UserError, match="no loss"):
        History([]).plot(tmp_path / "curve.svg")
    assert "svg" not in History([])._repr_html_()
    assert repr(History([])).startswith("History of 0 steps")


def test_it_reads_a_run_that_is_still_being_written(tmp_path: Path) -> None:
    assert len(read_history(tmp_path, unit="nats")) == 0
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS) + '{"step": 8, "lo')
    assert read_history(tmp_path, unit="nats")["step"] == [2, 4, 6]


def test_pandas_gets_the_same_table(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = History(ROWS).to_pandas()
    assert list(frame.columns) == History(ROWS).columns
    assert frame["loss"].tolist() == History(ROWS)["loss"]
    assert frame["validation_nats"].isna().tolist() == [True, False, True]
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UserError, match="pandas") as caught:
        History(ROWS).to_pandas()
    assert caught.value.fix == "pip install pandas"
