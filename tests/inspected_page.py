"""A page in a real browser, opened from disk, and everything about it that should not have happened.

Needs Chromium and Playwright's Python package: `apt-get install chromium` (or `playwright install chromium`).
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@contextmanager
def opened_browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="no Playwright: pip install playwright")
    with playwright.sync_playwright() as drive:
        own = drive.chromium.executable_path
        path = next(filter(None, map(shutil.which, BROWSERS)), own if os.path.exists(own) else None)
        if path is None:
            pytest.skip(f"no browser: none of {', '.join(BROWSERS)} is on the PATH; apt-get install chromium")
        # Without a sandbox a browser runs inside containers too; it only opens pages that were written here.
        opened = drive.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield opened
        opened.close()


class Watched:
    """A page, and everything about it that should not have happened."""

    def __init__(self, browser: Any, path: Path, *, width: int = 1400, scheme: str = "light", script: bool = True):
        self.context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, java_script_enabled=script, offline=True
        )
        self.page = self.context.new_page()
        self.wrong: list[str] = []
        self.page.on("console", lambda said: self.wrong.append(f"console: {said.text}"))
        self.page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        self.page.on("dialog", lambda dialog: self.wrong.append("a dialog") or dialog.dismiss())
        self.page.on("request", lambda request: self._requested(request.url))
        self.page.goto(path.as_uri())

    def _requested(self, url: str) -> None:
        if not url.startswith(("file:", "data:", "blob:")):
            self.wrong.append(f"request: {url[:100]}")

    def __enter__(self) -> "Watched":
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()


# What is wider than its place, or a drawing nobody can see. Tables scroll inside theirs.
STICKING_OUT = """() => {
  const wide = document.documentElement.clientWidth, found = [];
  if (document.documentElement.scrollWidth > wide) found.push("the page scrolls sideways");
  for (const one of document.querySelectorAll("main *")) {
    const box = one.getBoundingClientRect();
    if (box.width && !one.closest(".scroll, svg") && box.right > wide + 1)
      found.push(`${one.tagName}.${one.className} ends at ${box.right}`);
  }
  for (const figure of document.querySelectorAll("figure:not(.text)")) {  // a text is no drawing
    if (!figure.checkVisibility()) continue;  // folded away
    const charts = [...figure.querySelectorAll(".still svg.chart")].filter((one) => one.checkVisibility());
    const drawn = charts[0]?.getBoundingClientRect(), own = charts[0]?.viewBox.baseVal;
    // As wide as its place and in its own proportions; the lowest is a matrix of two rows.
    if (!drawn || drawn.width < 200 || Math.abs(drawn.height / drawn.width - own.height / own.width) > 0.02)
      found.push(`${figure.id} is not drawn`);
  }
  return found;
}"""
# Texts of one figure that lie on each other, or beyond its edge.
OVERLAPS = """() => {
  const found = [];
  for (const figure of document.querySelectorAll("figure")) {
    const texts = [...figure.querySelectorAll("svg text")]
      .filter((one) => one.checkVisibility() && one.textContent.trim());
    const boxes = texts.map((one) => one.getBoundingClientRect());
    const place = figure.getBoundingClientRect();
    boxes.forEach((box, at) => {
      const inside = box.left >= place.left && box.right <= place.right;
      if (!inside) found.push(`${figure.id}: "${texts[at].textContent}" is cut`);
    });
    for (let a = 0; a < boxes.length; a++) for (let b = a + 1; b < boxes.length; b++) {
      const x = Math.min(boxes[a].right, boxes[b].right) - Math.max(boxes[a].left, boxes[b].left);
      const y = Math.min(boxes[a].bottom, boxes[b].bottom) - Math.max(boxes[a].top, boxes[b].top);
      if (x > 2 && y > 4) found.push(`${figure.id}: "${texts[a].textContent}" on "${texts[b].textContent}"`);
    }
  }
  return found;
}"""
