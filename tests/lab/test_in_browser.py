"""The lab in a real browser, opened from disk: nothing is fetched, nothing complains, nothing sticks out."""

from pathlib import Path
from typing import Any

import pytest
from inspected_page import OVERLAPS
from lab_views import VIEWS, opened

from statewise.lab import page

EVIL = "<script>document.title='run'</script><img src=x onerror=\"document.title='run'\">"
WIDTHS = (375, 768, 1280, 1920)
# What is wider than the window. Code, equations, tables and strips scroll inside their place.
STICKING_OUT = """() => {
  const wide = document.documentElement.clientWidth, found = [];
  if (document.documentElement.scrollWidth > wide) found.push("the page scrolls sideways");
  for (const one of document.querySelectorAll("#lab *")) {
    const box = one.getBoundingClientRect();
    const scrolls = one.closest("pre, .scroll, svg, .skip, .equation");
    if (one.checkVisibility() && box.width && !scrolls && box.right > wide + 1)
      found.push(`${one.tagName}.${one.className} ends at ${box.right}`);
  }
  for (const svg of document.querySelectorAll("main svg.chart"))
    if (svg.checkVisibility() && svg.getBoundingClientRect().width < 200) found.push("a drawing is not seen");
  return found;
}"""


@pytest.mark.parametrize("width", WIDTHS)
def test_every_view_fits_in_both_languages_and_themes(width: int, browser: Any, lab_page: Path) -> None:
    with opened(browser, lab_page, width=width) as seen:
        for view in VIEWS:
            seen.page.evaluate(f"location.hash = {view!r}")
            for press in (0, 1, 0, 1):  # language, theme, and back
                seen.page.wait_for_selector(f"#view-{view}:visible")
                assert seen.page.evaluate(STICKING_OUT) == [], view
                assert seen.page.evaluate(OVERLAPS) == [], view
                seen.page.locator(".switch").nth(press).click()
        assert seen.wrong == []


def test_a_hostile_title_runs_nothing(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "evil.html"
    path.write_text(page({"version": 1, "models": [], "extra": {EVIL: EVIL}}, EVIL), encoding="utf-8")
    with opened(browser, path) as seen:
        assert EVIL in seen.page.title()
        assert seen.page.locator("h1").inner_text() == EVIL
        assert seen.wrong == []


def test_pictures_are_saved(browser: Any, lab_page: Path, tmp_path: Path) -> None:
    from xml.etree import ElementTree

    with opened(browser, lab_page, "eigenvalues") as seen:
        saved = {}
        for kind in ("CSV", "SVG", "PNG"):
            with seen.page.expect_download() as waiting:
                seen.page.locator("#eigenvalues-curve .export button", has_text=kind).click()
            saved[kind] = tmp_path / waiting.value.suggested_filename
            waiting.value.save_as(saved[kind])
        assert saved["CSV"].read_text(encoding="utf-8-sig").splitlines()[1] == "0,1,1"
        ElementTree.parse(saved["SVG"])
        assert "var(--" not in saved["SVG"].read_text(encoding="utf-8").replace("var(--c)", "")
        assert saved["PNG"].read_bytes().startswith(b"\x89PNG")
        assert seen.wrong == []


def test_the_choice_of_language_stays(browser: Any, lab_page: Path) -> None:
    with opened(browser, lab_page) as seen:
        seen.page.locator(".switch").first.click()
        seen.page.reload()
        seen.page.wait_for_selector("html[data-ready]")
        assert seen.page.evaluate("document.documentElement.lang") == "zh-Hans"
        assert seen.wrong == []


def test_equations_are_drawn_by_the_browser(browser: Any, lab_page: Path) -> None:
    """Nothing of the plain notation is left, and an index stands lower and smaller than its letter."""
    with opened(browser, lab_page) as seen:
        for view in VIEWS:
            seen.page.evaluate(f"location.hash = {view!r}")
            seen.page.wait_for_selector(f"#view-{view}:visible")
            place = seen.page.locator("section:not([hidden]) .equation")
            seen.page.locator("section:not([hidden]) .how summary").click()
            assert place.locator("math").count() > 0
            assert not set('_^{}"\\') & set(place.evaluate("(one) => one.textContent")), view
        low = seen.page.evaluate(
            """() => [...document.querySelectorAll("msub")].filter((one) => one.checkVisibility()).map((one) => {
              const [base, index] = [...one.children].map((part) => part.getBoundingClientRect());
              return index.bottom > base.bottom && index.left >= base.right - 3 && index.height < base.height * 1.05;
            })"""
        )
        assert all(low)
        assert seen.wrong == []


@pytest.mark.parametrize(("view", "row"), [("touch", "layers.0.h_BP[0]"), ("hover", "1,`,")])
def test_pictures_of_buttons_are_saved(view: str, row: str, browser: Any, lab_page: Path, tmp_path: Path) -> None:
    from xml.etree import ElementTree

    with opened(browser, lab_page, view) as seen:
        buttons = seen.page.locator("section:not([hidden]) .export").nth(2 if view == "hover" else 0)
        saved = {}
        for kind in ("CSV", "SVG", "PNG"):
            with seen.page.expect_download() as waiting:
                buttons.locator("button", has_text=kind).click()
            saved[kind] = tmp_path / f"picture.{kind.lower()}"
            waiting.value.save_as(saved[kind])
        assert row in saved["CSV"].read_text(encoding="utf-8-sig")
        drawn = ElementTree.parse(saved["SVG"]).getroot()
        fills = {one.get("fill") for one in drawn.iter("{http://www.w3.org/2000/svg}rect")}
        assert len(fills) > 3, "one colour each for numbers that differ"
        assert saved["PNG"].read_bytes().startswith(b"\x89PNG")
        assert seen.wrong == []
