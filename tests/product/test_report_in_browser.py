"""The report in a real browser, opened from disk: nothing is fetched, nothing complains, nothing sticks out.

Needs Chromium and Playwright's Python package: `apt-get install chromium` (or `playwright install chromium`).
"""

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import made_study as made
import pytest
from inspected_page import OVERLAPS, STICKING_OUT, Watched

from statewise.comparison.report import write_report
from statewise.comparison.trial import Answer, Course, Failure, Point

WIDTHS = (360, 768, 1400)
EVIL = "<script>document.title='run'</script><img src=x onerror=\"document.title='run'\">"


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("reports")
    entries = [made.entry(one) for one in made.LINEAGE]
    study = made.study([one.name for one in made.LINEAGE])
    evil = made.Made(f"{EVIL} & so on", 2.2, 1e4, 800)
    bad = [one._replace(sample=[(EVIL, 1.0)], surprise=[(EVIL, 1.0)]) for one in made.results((evil, made.ENTRIES[2]))]
    partial = [one for one in made.results() if one.entry != "gru" and one.seed < 2]
    failure = Failure("0" * 20, "gru", 0, "final", "the loss was NaN " + "at/a/very/long/path" * 12, True)
    six = [one.name for one in made.ENTRIES]
    point = Point(10, 10, 1.0, 1.0, 2.0)
    answers = [Answer(f"the cat sat on mat {at} " * 4, "", "a_label" * 3, f"{EVIL}"[: at % 9]) for at in range(20)]
    told = {"answers": answers, "course": Course("x", [1.0, 2.0], [2.5, None], [2.0, 2.5]), "prompt": EVIL}
    told |= {"watched": {"nats": [point]}, "anchors": {"always the most frequent of all": 7.0}}
    other = [made.found(one, seed=seed, bare=True)._replace(**told) for one in made.ENTRIES for seed in range(3)]
    return {
        "static": write_report(study, entries, made.results(made.LINEAGE), folder=folder / "static", static=True),
        "live": write_report(study, entries, made.results(made.LINEAGE), folder=folder / "live"),
        "evil": write_report(made.study([evil.name, "lstm"], title=EVIL), [], bad, folder=folder / "evil"),
        "partial": write_report(
            made.study(six), [], partial, folder=folder / "partial", static=True, failures=[failure]
        ),
        "answers": write_report(made.study(six), [], other, folder=folder / "answers"),
        "none": write_report(made.study(six), [], [], folder=folder / "none", static=True),
    }


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("kind", ["static", "live"])
def test_opens_from_disk(kind: str, width: int, browser: Any, reports: dict[str, Path]) -> None:
    """In light, and when night falls while it is open."""
    with Watched(browser, reports[kind], width=width) as seen:
        page = seen.page
        if kind == "live":
            page.wait_for_selector("#time-by-context .main-svg")
        for scheme, colour in (("light", "rgb(255, 255, 255)"), ("dark", "rgb(20, 23, 26)")):
            page.emulate_media(color_scheme=scheme)
            assert page.evaluate("getComputedStyle(document.body).backgroundColor") == colour
            if kind == "live":
                plot = "document.querySelector('#standings .main-svg').style.background"
                page.wait_for_function(f"{plot} === '{colour}'")
            assert page.evaluate(STICKING_OUT) == []
            assert page.evaluate(OVERLAPS) == []
        assert seen.wrong == []


@pytest.mark.parametrize("kind", ["partial", "none", "evil", "answers"])
def test_the_unusual_opens_too(kind: str, browser: Any, reports: dict[str, Path]) -> None:
    with Watched(browser, reports[kind], width=360) as seen:
        assert seen.page.evaluate(STICKING_OUT) == []
        assert seen.page.title() != "run"
        assert seen.wrong == []


def test_both_forms_draw_the_same_points_and_one_can_be_left_out(browser: Any, reports: dict[str, Path]) -> None:
    with Watched(browser, reports["live"]) as seen:
        page = seen.page
        page.wait_for_selector("#quality-state .main-svg")
        drawn = "document.querySelectorAll('#quality-state .live .scatterlayer .point').length"
        still = "document.querySelectorAll('#quality-state .wide .series:not(.key)').length"
        assert page.evaluate(drawn) == page.evaluate(still) == len(made.LINEAGE)
        key = page.locator("#quality-state .keys button").first
        key.click()
        assert key.get_attribute("aria-pressed") == "false"
        assert page.evaluate(drawn) == len(made.LINEAGE) - 1
        assert seen.wrong == []


def test_without_scripts_the_drawings_stand(browser: Any, reports: dict[str, Path]) -> None:
    with Watched(browser, reports["live"], script=False) as seen:
        assert seen.page.locator("#standings .still").is_visible()
        assert not seen.page.locator("#standings .export button").first.is_visible()


def test_on_paper(browser: Any, reports: dict[str, Path]) -> None:
    """Light, drawings instead of plotly, everything unfolded."""
    with Watched(browser, reports["live"], scheme="dark") as seen:
        page = seen.page
        page.wait_for_selector("#time-by-context .main-svg")
        page.emulate_media(media="print")
        assert page.locator("#standings .still").is_visible()
        assert not page.locator("#standings .live").is_visible()
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        page.set_viewport_size({"width": 690, "height": 1000})  # A4 between its margins
        assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        assert page.pdf(format="A4").startswith(b"%PDF")


def test_figures_are_exported(browser: Any, reports: dict[str, Path], tmp_path: Path) -> None:
    with Watched(browser, reports["static"], scheme="dark") as seen:
        kept = {}
        for name, selector in (("csv", "a"), ("svg", "button[data-save=svg]"), ("png", "button[data-save=png]")):
            with seen.page.expect_download() as download:
                seen.page.locator(f"#quality-state .export {selector}").click()
            assert download.value.suggested_filename == f"quality-state.{name}"
            download.value.save_as(tmp_path / name)
            kept[name] = (tmp_path / name).read_bytes()
        assert kept["csv"].decode().count("\n") == 1 + len(made.LINEAGE)
        assert kept["png"].startswith(b"\x89PNG")
        assert b"--c0: #0b62b8" in kept["svg"]  # its colours went with it
        assert ElementTree.fromstring(kept["svg"]).tag.endswith("svg")
        assert seen.wrong == []


def test_columns_sort(browser: Any, reports: dict[str, Path]) -> None:
    with Watched(browser, reports["static"]) as seen:
        seen.page.locator("#entries th", has_text="state").locator("button").click()
        column = "[...document.querySelectorAll('#entries tbody tr')].map((row) => Number(row.cells[7].dataset.value))"
        values = seen.page.evaluate(column)
        assert len(values) == len(made.LINEAGE)
        assert values == sorted(values)
