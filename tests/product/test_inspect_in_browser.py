"""Every lens's page in a real browser, opened from disk: nothing is fetched, nothing complains, nothing sticks out."""

from pathlib import Path
from typing import Any

import pytest
import torch
from covering import covered
from inspected_page import OVERLAPS, STICKING_OUT, Watched

from statewise.figures import html
from statewise.figures.figure import Axis, Figure, Grid, Series
from statewise.figures.passage import Passage
from statewise.inspection import Inspection, inspect, live_subject
from statewise.models import build
from statewise.specs import LSTMSpec, TransformerSpec

WIDTHS = (360, 1400)
# Text runs on, so a passage has no drawing of its own to be seen; and labels of a map's cells may be dense.
UNDRAWN = STICKING_OUT.replace('querySelectorAll("figure")', 'querySelectorAll("figure:not(.text)")')


def letters(ids: Any) -> str:
    return "".join("·abcdefghij klmnop"[int(one)] for one in ids)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    tokens_T = torch.randint(1, 17, (300,), generator=torch.Generator().manual_seed(0))
    models = {
        "lstm": build(LSTMSpec(width=8, dropout=0.0), vocab=17),
        "transformer": build(TransformerSpec(width=8, heads=2, depth=2, dropout=0.0), vocab=17),
    }
    seen = {
        name: live_subject(model.eval(), tokens_T, name=name, decode=letters, end_id=0)
        for name, model in models.items()
    }
    found: dict[str, Inspection] = {
        "surprise": inspect(seen["lstm"], "surprise", shown=200),
        "gradient": inspect(seen["lstm"], "gradient", window=24, queries=6, context=16, targets=8, steps=8),
        "attention": inspect(seen["transformer"], "attention", window=24, rows=2),
        "bptt": inspect(seen["lstm"], "bptt", window=24, length=6, draws=8, rows=2, batches=3),
    }
    return {name: one.write(folder / name) for name, one in found.items()}


@covered("lens, width", ["surprise", "gradient", "attention", "bptt"], WIDTHS, strength=1)
def test_a_page_opens(lens: str, width: int, browser: Any, pages: dict[str, Path]) -> None:
    with Watched(browser, pages[lens], width=width) as seen:
        page = seen.page
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            assert page.evaluate(UNDRAWN) == []
            assert page.evaluate(OVERLAPS) == []
        assert seen.wrong == []


def test_a_map_and_a_text_are_exported(browser: Any, pages: dict[str, Path], tmp_path: Path) -> None:
    for name, figure in (("gradient", "gradient-map"), ("surprise", "surprise-text")):
        with Watched(browser, pages[name]) as seen:
            for kind, selector in (("csv", "a"), ("svg", "button[data-save=svg]"), ("png", "button[data-save=png]")):
                with seen.page.expect_download() as download:
                    seen.page.locator(f"#{figure} .export {selector}").click()
                assert download.value.suggested_filename == f"{figure}.{kind}"
                download.value.save_as(tmp_path / kind)
            assert (tmp_path / "png").read_bytes().startswith(b"\x89PNG")
            assert (tmp_path / "png").stat().st_size > 3000
            assert seen.wrong == []


def test_every_kind_of_figure(browser: Any, tmp_path: Path) -> None:
    """Those that no lens here draws, too."""
    rows = Axis("", "category", categories=tuple(f"row {n}" for n in range(4)))
    bars = Series("a", (1.0, 2.0, 3.0, 4.0), (0.0, 1.0, 2.0, 3.0), (0.5, 1.5, 2.5, 3.5), (1.5, 2.5, 3.5, 4.5))
    cloud = Series("a", (0.1, 0.5, -0.3), (0.2, -0.4, 0.9))
    grid = Grid(tuple(tuple(float(a - b) for a in range(60)) for b in range(40)), "gap", signed=True)
    figures = [
        Figure("some-bars", "Bars", "bars", Axis("x"), rows, (bars, bars._replace(name="b")), "How.", "What."),
        Figure("some-cloud", "Cloud", "scatter", Axis("x"), Axis("y"), (cloud,), "How.", "What."),
        Figure("some-plane", "Plane", "plane", Axis("re"), Axis("im"), (cloud,), "How.", "What.", circle=1.0),
        Figure(
            *("some-map", "Map", "map", Axis("x"), Axis("y"), (), "How.", "What."),
            grid=grid._replace(x=tuple(range(60)), y=tuple(range(40))),
        ),
    ]
    text = Passage("some-text", "Text", (("some ", 1.0), ("text\n", -1.0)), "bits", "How.", "What.", signed=True)
    for static in (True, False):
        path = tmp_path / f"{static}.html"
        path.write_text(html.page(title="t", body=html.figures([*figures, text]), static=static))
        for width in WIDTHS:
            with Watched(browser, path, width=width) as seen:
                assert seen.page.locator("#some-bars .wide rect.fill").count() == 8
                assert seen.page.locator("#some-plane .wide circle.axis").count() == 1
                assert seen.page.evaluate(UNDRAWN) == []
                assert seen.wrong == []
