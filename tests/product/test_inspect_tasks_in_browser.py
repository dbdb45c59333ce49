"""Pages of lenses on every task in a real browser, opened from disk, on a narrow screen and on a wide one."""

from pathlib import Path
from typing import Any

import pytest
from covering import covered
from inspected_page import OVERLAPS, STICKING_OUT, Watched
from task_runs import make_run

from statewise.inspection import inspect

PAGES = (
    *("classifier-transformer", "grids", "tagger", "tree", "direct"),
    *("translator", "translator-transformer", "translator-prompted"),
)


@pytest.fixture(scope="module")
def pages(tasks: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    written = {}
    for name in PAGES:
        found = inspect(make_run(name, tasks))
        for kind in ("static", "live"):
            written[f"{name} {kind}"] = folder / f"{name}-{kind}.html"
            written[f"{name} {kind}"].write_text(found.to_html(static=kind == "static"), encoding="utf-8")
    return written


@covered("name, kind, width", PAGES, ["static", "live"], [360, 1200], strength=1)
def test_opens_from_disk(name: str, kind: str, width: int, browser: Any, pages: dict[str, Path]) -> None:
    with Watched(browser, pages[f"{name} {kind}"], width=width) as seen:
        assert seen.page.evaluate(STICKING_OUT) == []
        assert seen.page.evaluate(OVERLAPS) == []
        assert seen.wrong == []
