"""Pages of lenses on every task in a real browser, opened from disk, on a narrow screen and on a wide one."""

from functools import cache
from pathlib import Path
from typing import Any

from covering import covered
from inspected_page import OVERLAPS, STICKING_OUT, Watched
from task_runs import make_run

from statewise.inspection import Inspection, inspect

PAGES = (
    *("classifier-transformer", "grids", "tagger", "tree", "direct"),
    *("translator", "translator-transformer", "translator-prompted"),
)


@cache
def looked_at(run: Path) -> Inspection:
    return inspect(run)


@covered("name, kind, width", PAGES, ["static", "live"], [360, 1200], strength=1)
def test_opens_from_disk(name: str, kind: str, width: int, browser: Any, tasks: Path, tmp_path: Path) -> None:
    path = tmp_path / "inspect.html"
    path.write_text(looked_at(make_run(name, tasks)).to_html(static=kind == "static"), encoding="utf-8")
    with Watched(browser, path, width=width) as seen:
        assert seen.page.evaluate(STICKING_OUT) == []
        assert seen.page.evaluate(OVERLAPS) == []
        assert seen.wrong == []
