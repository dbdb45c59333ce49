"""Readable by everybody: axe-core finds nothing serious in any view, language and theme."""

from pathlib import Path
from typing import Any

import pytest
from lab_views import VIEWS, opened
from node import npm_package

AXE = """async () => (await axe.run(document, { resultTypes: ["violations"] })).violations
  .filter((one) => ["serious", "critical"].includes(one.impact))
  .map((one) => `${one.id}: ${one.nodes.slice(0, 3).map((node) => node.html.slice(0, 120)).join(" | ")}`)"""


@pytest.mark.parametrize("view", VIEWS)
def test_axe_finds_nothing_serious(view: str, browser: Any, lab_page: Path) -> None:
    source = (npm_package("axe-core") / "axe.min.js").read_text(encoding="utf-8")
    for width, scheme in ((1280, "light"), (375, "dark")):
        with opened(browser, lab_page, view, width=width, scheme=scheme) as seen:
            page = seen.page
            page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
            page.evaluate(source)
            assert page.evaluate(AXE) == []
            page.locator(".switch").first.click()
            assert page.evaluate(AXE) == []
            assert seen.wrong == []
