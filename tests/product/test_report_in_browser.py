"""The report in a real browser, opened from disk: nothing is fetched, nothing complains, nothing sticks out.

Needs Chromium and Playwright's Python package: `apt-get install chromium` (or `playwright install chromium`).
"""

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import made_study as made
import pytest
from covering import covered
from inspected_page import OVERLAPS, STICKING_OUT, Watched

from statewise.comparison.report import Part
from statewise.comparison.trial import Failure, Point
from statewise.tasks import Answer, Course

WIDTHS = (360, 390, 768, 1280, 1400)
EVIL = "<script>document.title='run'</script><img src=x onerror=\"document.title='run'\">"
# Tables that have to be scrolled sideways, besides those that are folded away.
CUT = """() => [...document.querySelectorAll(".scroll")].filter((one) => one.checkVisibility())
  .filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.closest("section").id)"""


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("reports")

    def part(names: Any, found: Any, entries: Any = (), failures: Any = (), **more: Any) -> Part:
        return Part("made", made.study(names, **more), entries, found, failures, folder)

    nineteen = [one.name for one in made.LINEAGE]
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
    whole = part(nineteen, made.results(made.LINEAGE), [made.entry(one) for one in made.LINEAGE])
    return {
        "two": made.write_lineage(folder / "two"),
        "one": made.write(whole, folder=folder / "one", static=False),
        "static": made.write(whole, folder=folder / "static", static=True),
        "evil": made.write(part([evil.name, "lstm"], bad, title=EVIL), folder=folder / "evil", static=False),
        "partial": made.write(part(six, partial, failures=[failure]), folder=folder / "partial", static=False),
        "answers": made.write(part(six, other), folder=folder / "answers", static=False),
        "none": made.write(part(six, []), folder=folder / "none", static=False),
    }


@covered("kind, width", ["two", "one", "static"], WIDTHS, strength=1)
def test_opens_from_disk(kind: str, width: int, browser: Any, reports: dict[str, Path]) -> None:
    """In light and in dark, folded and unfolded."""
    with Watched(browser, reports[kind], width=width) as seen:
        page = seen.page
        assert page.evaluate(CUT) == [] or width in (360, 768)
        for scheme, colour in (("light", "rgb(255, 255, 255)"), ("dark", "rgb(20, 23, 26)")):
            page.emulate_media(color_scheme=scheme)
            assert page.evaluate("getComputedStyle(document.body).backgroundColor") == colour
            assert page.evaluate(STICKING_OUT) == []
            assert page.evaluate(OVERLAPS) == []
            page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        assert seen.wrong == []


@pytest.mark.parametrize("kind", ["partial", "none", "evil", "answers"])
def test_the_unusual_opens_too(kind: str, browser: Any, reports: dict[str, Path]) -> None:
    with Watched(browser, reports[kind], width=390) as seen:
        assert seen.page.evaluate(STICKING_OUT) == []
        assert seen.page.title() != "run"
        assert seen.wrong == []


def test_the_lesson_is_seen_first(browser: Any, reports: dict[str, Path]) -> None:
    """The figure and the whole verdict, without scrolling."""
    with Watched(browser, reports["two"], width=1280) as seen:
        for name in ("#memory-scores .wide svg", ".verdict"):
            box = seen.page.locator(name).bounding_box()
            assert box is not None
            assert box["y"] + box["height"] < 900, name


def test_the_legend_highlights_an_entry_in_all_figures(browser: Any, reports: dict[str, Path]) -> None:
    with Watched(browser, reports["two"]) as seen:
        page = seen.page
        key = page.locator(".legend button", has_text="gru").first
        key.click()
        page.mouse.move(5, 5)
        assert key.get_attribute("aria-pressed") == "true"
        on = "[...document.querySelectorAll('.series.on')].map((one) => one.dataset.entry)"
        assert set(page.evaluate(on)) == {"gru"}
        charts = "[...document.querySelectorAll('svg.chart.lit')].map((one) => one.closest('figure').id)"
        assert {"memory-scores", "prediction-quality-model", "memory-learning-steps"} <= set(page.evaluate(charts))
        faded = page.locator("#memory-scores .wide .series[data-entry=lstm]").first
        page.wait_for_function("(one) => getComputedStyle(one).opacity < 0.5", arg=faded.element_handle())
        key.click()
        page.mouse.move(5, 5)
        assert page.evaluate(on) == []
        page.locator(".legend button", has_text="matrix").click()  # all entries of a kind of state
        assert set(page.evaluate(on)) == {"mamba2", "linear_attention", "gated_delta"}
        assert seen.wrong == []


def test_a_point_tells_its_values(browser: Any, reports: dict[str, Path]) -> None:
    with Watched(browser, reports["two"]) as seen:
        mark = seen.page.locator("#prediction-quality-model .wide .series[data-entry='markov 7'] .mark").first
        mark.hover()
        tip = seen.page.locator(".tip")
        assert tip.inner_text().splitlines()[:2] == ["markov 7", "everything needed to predict (bytes): 8.64 MiB"]
        seen.page.mouse.move(5, 5)
        assert not tip.is_visible()
        chart = seen.page.locator("#memory-scores .wide svg")
        assert (chart.get_attribute("aria-label") or "").startswith("Accuracy by kind of state. From transformer")


def test_without_scripts_the_drawings_stand(browser: Any, reports: dict[str, Path]) -> None:
    with Watched(browser, reports["one"], script=False) as seen:
        assert seen.page.locator("#standings .still").is_visible()
        assert not seen.page.locator("#standings .export button").first.is_visible()


def test_on_paper(browser: Any, reports: dict[str, Path]) -> None:
    """In light colours, and everything unfolded."""
    with Watched(browser, reports["two"], scheme="dark") as seen:
        page = seen.page
        page.emulate_media(media="print")
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert page.locator("#more figure").first.is_visible()
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        page.set_viewport_size({"width": 690, "height": 1000})  # A4 between its margins
        assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        assert page.pdf(format="A4").startswith(b"%PDF")


def test_figures_are_exported(browser: Any, reports: dict[str, Path], tmp_path: Path) -> None:
    with Watched(browser, reports["one"], scheme="dark") as seen:
        kept = {}
        for name, selector in (("csv", "a"), ("svg", "button[data-save=svg]"), ("png", "button[data-save=png]")):
            with seen.page.expect_download() as download:
                seen.page.locator(f"#quality-state .export {selector}").click()
            assert download.value.suggested_filename == f"quality-state.{name}"
            download.value.save_as(tmp_path / name)
            kept[name] = (tmp_path / name).read_bytes()
        assert kept["csv"].decode().count("\n") == 1 + len(made.LINEAGE)
        assert kept["png"].startswith(b"\x89PNG")
        assert b"--c0: #3b76c3" in kept["svg"]  # its colours went with it
        assert ElementTree.fromstring(kept["svg"]).tag.endswith("svg")
        assert seen.wrong == []


def test_columns_sort(browser: Any, reports: dict[str, Path]) -> None:
    with Watched(browser, reports["one"]) as seen:
        page = seen.page
        head = page.locator("#entries th", has_text="after 1,024 tokens")
        head.locator("button").click()
        at = head.evaluate("(one) => one.cellIndex")
        rows = "[...document.querySelectorAll('#entries table[data-sortable] tbody tr')]"
        values = page.evaluate(f"{rows}.map((row) => Number(row.cells[{at}].dataset.value))")
        assert len(values) == len(made.LINEAGE)
        assert values == sorted(values)
