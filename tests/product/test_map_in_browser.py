"""Maps in a real browser: names of rows and columns have the room there is, and are cut where there is none."""

from pathlib import Path
from typing import Any

import pytest
from inspected_page import OVERLAPS, STICKING_OUT, Watched

from statewise.figures.figure import Axis, Figure, Grid
from statewise.figures.html import figures, page

LONG = "layers.0.mixer.forget_gate"
EMOJI = "\N{THUMBS UP SIGN}" * 60  # two code units each: half of one would be no letter
NAMES = """() => [...document.querySelectorAll(".live .ytick text, .still .tick")]
  .filter((one) => one.checkVisibility()).map((one) => one.textContent)"""


def drawn(rows: tuple[str, ...], columns: tuple[str, ...]) -> Figure:
    grid = Grid(tuple(tuple(float(i + j) for j in range(len(columns))) for i in range(len(rows))), "share")
    x, y = Axis("read", categories=columns), Axis("written", categories=rows)
    return Figure(f"of-{len(rows)}", "A map", "map", x, y, (), "How to read it.", "What it shows.", grid=grid)


@pytest.mark.parametrize(("static", "width"), [(False, 1400), (False, 360), (True, 1400), (True, 360)])
def test_names_have_the_room_there_is(static: bool, width: int, browser: Any, tmp_path: Path) -> None:
    some = [drawn((LONG, EMOJI, "short"), ("a", LONG)), drawn((LONG,) * 40, (LONG,) * 40)]
    path = tmp_path / "page.html"
    path.write_text(page(title="Maps", body=figures(some), figures=some, static=static), encoding="utf-8")
    with Watched(browser, path, width=width) as seen:
        if not static:
            seen.page.wait_for_selector(".main-svg")
        names = seen.page.evaluate(NAMES)
        assert "short" in names
        assert (LONG in names) == (width > 1000)
        assert any(name.endswith("\N{THUMBS UP SIGN}…") for name in names)
        assert seen.page.evaluate(STICKING_OUT) == []
        assert seen.page.evaluate(OVERLAPS) == []
        assert seen.wrong == []
