"""Tables of an evaluation on narrow terminals: numbers and names are never cut."""

import re

import pytest

from statewise.cli.output import print_report
from statewise.tasks import Report

COLUMNS = ("MSE", "MAE", "degrees of freedom", "MSE at 1", "MSE at 16", "MSE at 24")
NAMES = ("least squares AR(25)", "模型")
ROWS = tuple((name, *(f"{row}.{place}234" for place in range(len(COLUMNS)))) for row, name in enumerate(NAMES))


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_every_number_is_whole_on_any_terminal(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    print_report(Report(COLUMNS, ROWS, 0, "a note"), title="a run", first="predictor")
    printed = capsys.readouterr().out
    assert "…" not in printed
    lines = printed.splitlines()
    assert max(map(len, lines)) <= width
    for row, (name, *numbers) in enumerate(ROWS):
        assert re.findall(rf"{row}\.\d234", printed) == numbers
        assert printed.count(name.split()[-1]) == printed.count("predictor")  # its name stands in each table


def test_a_wide_terminal_has_one_table(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    print_report(Report(COLUMNS, ROWS, 0, "a note"), title="a run", first="predictor")
    assert capsys.readouterr().out.count("predictor") == 1
