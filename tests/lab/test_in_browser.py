"""The lab in a real browser, opened from disk: nothing is fetched, nothing complains, nothing sticks out."""

import base64
import csv
import io
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import pytest
from inspected_page import OVERLAPS
from lab_views import VIEWS, opened

from statewise.lab import page

EVIL = "<script>document.title='run'</script><img src=x onerror=\"document.title='run'\">"
SVG = "{http://www.w3.org/2000/svg}"
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


COLOURS = """async (address) => {
  const image = new Image();
  await new Promise((done) => { image.onload = done; image.src = address; });
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [image.width, image.height];
  canvas.getContext("2d").drawImage(image, 0, 0);
  const pixels = new Uint32Array(canvas.getContext("2d").getImageData(0, 0, image.width, image.height).data.buffer);
  return new Set(pixels).size;
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


class Saved(NamedTuple):
    rows: list[list[str]]
    drawn: ElementTree.Element
    colours: int  # in the PNG


def saved(page: Any, buttons: Any) -> Saved:
    """What the buttons under a picture save: CSV, SVG and PNG."""
    files = {}
    for kind in ("CSV", "SVG", "PNG"):
        with page.expect_download() as waiting:
            buttons.locator("button", has_text=kind).click()
        files[kind] = Path(waiting.value.path()).read_bytes()
        assert waiting.value.suggested_filename.endswith(f".{kind.lower()}")
    assert "var(--" not in files["SVG"].decode().replace("var(--c)", "")
    painted = f"data:image/png;base64,{base64.b64encode(files['PNG']).decode()}"
    rows = list(csv.reader(io.StringIO(files["CSV"].decode("utf-8-sig"))))
    return Saved(rows, ElementTree.fromstring(files["SVG"]), page.evaluate(COLOURS, painted))


def test_pictures_are_saved(browser: Any, lab_page: Path) -> None:
    with opened(browser, lab_page, "eigenvalues") as seen:
        assert saved(seen.page, seen.page.locator("#eigenvalues-curve .export")).rows[1] == ["0", "1", "1"]
        assert seen.wrong == []


def test_every_picture_can_be_saved_in_three_formats(browser: Any, lab_page: Path) -> None:
    with opened(browser, lab_page) as seen:
        for view in VIEWS:
            seen.page.evaluate(f"location.hash = {view!r}")
            seen.page.wait_for_selector(f"#view-{view}:visible")
            groups = seen.page.locator("section:not([hidden]) .export")
            assert groups.count() > 0, view
            assert {group.inner_text() for group in groups.all()} == {"CSV\nSVG\nPNG"}, view
        assert seen.wrong == []


@pytest.mark.parametrize("view", ["touch", "clamp", "step", "ask"])
def test_bars_are_saved_as_long_as_they_are(view: str, browser: Any, lab_page: Path) -> None:
    with opened(browser, lab_page, view) as seen:
        seen.page.wait_for_selector("section:not([hidden]) :is(.next .bar, td)")
        place = f"#{view}-next .export" if view in ("touch", "clamp") else "section:not([hidden]) .export"
        found = saved(seen.page, seen.page.locator(place).first)
        at = 2 if view == "ask" else 1
        bars = [one for one in found.drawn.iter(f"{SVG}rect") if one.get("height") == "14"]
        whole, filled = bars[::2], bars[1::2]
        assert len(filled) == len(found.rows) - 1 > 0
        for track, bar, row in zip(whole, filled, found.rows[1:], strict=True):
            width = float(row[at]) * float(str(track.get("width")))
            assert float(str(bar.get("width"))) == pytest.approx(width, abs=1e-3)
        lines = [one for one in found.drawn.iter(f"{SVG}rect") if one.get("height") == "18"]
        assert len(lines) == (len(filled) if view in ("touch", "clamp") else 0)
        assert found.colours > 3
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


@pytest.mark.parametrize(
    ("view", "row", "group"),
    [("touch", "layers.0.h_BP[0]", 0), ("hover", "0", 2), ("step", "0", 3)],
)
def test_pictures_of_buttons_and_pixels_are_saved(
    view: str, row: str, group: int, browser: Any, lab_page: Path
) -> None:
    with opened(browser, lab_page, view) as seen:
        seen.page.wait_for_timeout(500)
        found = saved(seen.page, seen.page.locator("section:not([hidden]) .export").nth(group))
        assert found.rows[1][0] == row
        assert found.colours > 3, "one colour each for numbers that differ"
        assert seen.wrong == []
