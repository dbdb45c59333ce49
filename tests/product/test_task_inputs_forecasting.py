"""Forecasting: files as newcomers bring them, and what each verb makes of them."""

from pathlib import Path

import pytest
from task_inputs import SCRIPTS, SERIES, Case, trained, try_case


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("runs"), "forecasting")


def loads(*cells: str) -> str:
    return "date,load\n" + "".join(f"2024-02-{1 + i // 24:02} {i % 24:02}:00,{one}\n" for i, one in enumerate(cells))


CASES = [
    *(
        case
        for script, (good, _, _) in SCRIPTS.items()
        for case in (Case("train", script, SERIES.replace("load", good), None, {"data.targets": f'["{good}"]'}),)
    ),
    Case("train", "one row", loads("1"), ("load.csv",)),
    Case("train", "short", loads(*"1234"), ("load.csv",)),
    Case("train", "constant", loads(*["5"] * 120), None),
    Case("train", "header only", "date,load\n", ("load.csv",)),
    Case("train", "words", loads(*["1"] * 30, "high", *["1"] * 30), ("load.csv:32", "'high'")),
    Case("train", "holes", loads(*["1", "2", ""] * 40), None),
    Case("train", "infinite", loads(*["1"] * 30, "inf", *["1"] * 30), ("load.csv:32",)),
    Case("train", "twice", SERIES + "2024-01-01 00:00,1\n", ("load.csv",)),
    Case("train", "no such time", SERIES + "2024-13-45,1\n", ("load.csv:122", "2024-13-45")),
    Case("train", "ragged", SERIES + "2024-01-06 00:00,1,2\n", ("load.csv:122",)),
    Case("train", "stdin", SERIES, ("standard input",), file="-"),
    Case("predict", "one row", loads("1"), ("load.csv", "a single row")),
    Case("predict", "two rows", loads("1", "2"), 5),
    Case("predict", "holes", loads(*["1", "2", ""] * 10), 5),
    Case("predict", "other columns", "date,power\n2024-01-01,1\n2024-01-02,2\n", ("load",)),
    Case("evaluate", "short", loads(*"1234"), ("load.csv",)),
    Case("predict", "stdin", SERIES, 5, file="-"),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_whatever_it_holds(case: Case, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    try_case("forecasting", case, runs, tmp_path, monkeypatch)
