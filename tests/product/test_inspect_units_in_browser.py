"""The pages of gates, interventions and probes in a real browser, opened from disk."""

from pathlib import Path
from typing import Any

import pytest
import torch
from covering import covered
from inspected_page import OVERLAPS, STICKING_OUT, Watched

from statewise.inspection import Inspection, apply_lens, live_subject
from statewise.models import build

TEXT = 'He said "It (really) is [3 (or 4)] o\'clock."\n    Nothing <b>happened</b> in 1984 & after.\n' * 8
SMALL = {"parameters": 1500, "steps": 2, "rows": 8, "longest": 4, "factors": [1, 4], "workers": 1}
FAMILIES = ["markov", "window", "elman", "lstm", "linear_attention", "transformer"]


def subject(kind: str) -> Any:
    model = build(kind, vocab=128, width=16, depth=2, seed=1).eval()
    return live_subject(model, torch.tensor([*map(ord, TEXT)]), decode=lambda ids: "".join(map(chr, ids)))


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        probes = apply_lens(None, "probes", families=FAMILIES, **SMALL)
    found = {
        "gates": apply_lens(subject("lstm"), "gates", tokens=400),
        "updates": apply_lens(subject("ttt_linear"), "gates", tokens=300),
        "intervene": apply_lens(subject("lstm"), "intervene", places=4, ahead=16, tokens=12),
        "lists": apply_lens(subject("transformer"), "intervene", places=4, ahead=16, tokens=12),
        "probes": probes,
    }
    written = {}
    for name, one in found.items():
        for kind in ("static", "live"):
            path = folder / f"{name}-{kind}.html"
            path.write_text(Inspection(one.subject, (one,)).to_html(static=kind == "static"), encoding="utf-8")
            written[f"{name} {kind}"] = path
    return written


@covered(
    "name, kind, width",
    ["gates", "updates", "intervene", "lists", "probes"],
    ["static", "live"],
    [360, 1400],
    strength=1,
)
def test_opens_from_disk(name: str, kind: str, width: int, browser: Any, pages: dict[str, Path]) -> None:
    with Watched(browser, pages[f"{name} {kind}"], width=width) as seen:
        assert seen.page.evaluate(STICKING_OUT) == []
        assert seen.page.evaluate(OVERLAPS) == []
        assert seen.wrong == []


def test_every_drawing_says_how_it_is_read_and_what_it_shows(pages: dict[str, Path], browser: Any) -> None:
    for name in ("gates static", "updates static", "intervene static", "probes static"):
        with Watched(browser, pages[name]) as seen:
            empty = (
                "[...document.querySelectorAll('figcaption p, figcaption')].filter((one) => !one.textContent.trim())"
            )
            assert seen.page.evaluate(f"{empty}.length") == 0


def test_the_text_is_shown_as_text(pages: dict[str, Path], browser: Any) -> None:
    """What looks like a tag in the text that was read is none."""
    with Watched(browser, pages["gates static"]) as seen:
        assert seen.page.locator("main b", has_text="happened").count() == 0
