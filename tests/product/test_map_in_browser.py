"""Maps in a real browser: names of rows and columns have the room there is, and are cut where there is none."""

from pathlib import Path
from typing import Any

import pytest
from inspected_page import OVERLAPS, STICKING_OUT, Watched

from statewise.figures.figure import Axis, Figure, Grid
from statewise.figures.html import figures, page

LONG = "layers.0.mixer.forget_gate"
EMOJI = "\N{THUMBS UP SIGN}" * 60  # two code units each: half of one would be no letter
NAMES = """() => [...document.querySelectorAll(".still .tick")]
  .filter((one) => one.checkVisibility()).map((one) => one.textContent)"""


def drawn(rows: tuple[str, ...], columns: tuple[str, ...]) -> Figure:
    grid = Grid(tuple(tuple(float(i + j) for j in range(len(columns))) for i in range(len(rows))), "share")
    x, y = Axis("read", categories=columns), Axis("written", categories=rows)
    return Figure(f"of-{len(rows)}", "A map", "map", x, y, (), "How to read it.", "What it shows.", grid=grid)


@pytest.mark.parametrize("width", [1400, 360])
def test_names_have_the_room_there_is(width: int, browser: Any, tmp_path: Path) -> None:
    some = [drawn((LONG, EMOJI, "short"), ("a", LONG)), drawn((LONG,) * 40, (LONG,) * 40)]
    path = tmp_path / "page.html"
    path.write_text(page(title="Maps", body=figures(some)), encoding="utf-8")
    with Watched(browser, path, width=width) as seen:
        names = seen.page.evaluate(NAMES)
        assert "short" in names
        assert (LONG in names) == (width > 1000)
        assert any(name.endswith("\N{THUMBS UP SIGN}…") for name in names)
        assert seen.page.evaluate(STICKING_OUT) == []
        assert seen.page.evaluate(OVERLAPS) == []
        assert seen.wrong == []


def test_a_cell_tells_its_value(browser: Any, tmp_path: Path) -> None:
    """Drawn one by one, and as one image whose values come from the CSV beside it."""
    names = ('a "quoted", row', *(f"r{at}" for at in range(49)))
    some = [drawn(("p", "q"), ("x", "y")), drawn(names, tuple(f"c{at}" for at in range(50)))]
    path = tmp_path / "page.html"
    path.write_text(page(title="Maps", body=figures(some)), encoding="utf-8")
    with Watched(browser, path) as seen:
        tip = seen.page.locator(".tip")
        seen.page.locator("#of-2 .wide rect").nth(3).hover()
        assert tip.inner_text() == "q · y: 2.000"
        image = seen.page.locator("#of-50 .wide image")
        box = image.bounding_box()
        assert box is not None
        for row, column, name in ((0, 3, names[0]), (49, 49, "r48")):
            image.hover(position={"x": (column + 0.5) * box["width"] / 50, "y": (row + 0.5) * box["height"] / 50})
            assert tip.inner_text() == f"written: {name}\nread: c{column}\nshare: {row + column}"
        assert seen.wrong == []
