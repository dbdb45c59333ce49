"""Text of other scripts beside what a real browser makes of it, which knows Unicode's rules by itself."""

from pathlib import Path
from typing import Any

import pytest
from inspected_page import OVERLAPS, STICKING_OUT, Watched

from statewise.display.letter import alone, clusters, visible
from statewise.figures import html
from statewise.figures.figure import Axis, Figure, Grid, Series
from statewise.figures.passage import Passage
from statewise.figures.table import Column, Table, words
from statewise.figures.typeset import levels, order, runs_right_to_left

LINES = (
    "שלום world 12 (כן), 3.5 לא",
    "abc שלום 12, 7 def",
    "كان (نعم) في عام ١٩٩٩ قال: yes!",
    "x = 'كان' + 'في'",
    "1948 עולם, 50 אחוז abc 5",
    "plain words only",
)
TEXTS = (
    "नमस्ते दुनिया",
    "สวัสดีครับ น้ำ",
    "שָׁלוֹם",
    "👨‍👩‍👧‍👦👍🏽🇩🇪🇫🇷❤️1️⃣🏳️‍🌈",
    "e\u0301tude",
    "中文字",
    "한국",
    "\u1112\u1161\u11ab",
)
# The letters of a line from the left, as they are seen.
SEEN = """(text) => {
  const line = document.createElement("p");
  line.style.cssText = "unicode-bidi: plaintext; white-space: nowrap; width: 3000px; font: 20px sans-serif";
  line.textContent = text;
  document.body.append(line);
  const node = line.firstChild, range = document.createRange(), places = [...text].map((_, at) => {
    range.setStart(node, at); range.setEnd(node, at + 1);
    return range.getBoundingClientRect().left;
  });
  return places.map((_, at) => at).sort((a, b) => places[a] - places[b]);
}"""
LETTERS = '(text) => [...new Intl.Segmenter("en", { granularity: "grapheme" }).segment(text)].map((one) => one.segment)'
PIECES = (*"שלום\n", "नम", "स", "्ते", " ", "\x00", "\x1b[0m", "\r", "中文", "\u202e", *"👨\u200d👩", "\n", "<b>", "\t")


@pytest.fixture(scope="module")
def empty(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("empty") / "page.html"
    path.write_text('<!DOCTYPE html><meta charset="utf-8"><body></body>', encoding="utf-8")
    with Watched(browser, path) as seen:
        yield seen.page


@pytest.mark.parametrize("line", LINES)
def test_letters_lie_as_in_a_browser(line: str, empty: Any) -> None:
    assert order(levels(line, right=runs_right_to_left(line))) == empty.evaluate(SEEN, line)


@pytest.mark.parametrize("text", TEXTS)
def test_letters_are_those_of_a_browser(text: str, empty: Any) -> None:
    assert clusters(text) == empty.evaluate(LETTERS, text)


@pytest.mark.parametrize("width", [360, 1400])
def test_a_page_of_many_scripts(width: int, browser: Any, tmp_path: Path) -> None:
    names = tuple(
        f"{at} {alone(one)}" for at, one in enumerate(("中文字", "שלום", "नमस्ते", " ", "\n", "👨‍👩‍👧", "กำลัง"))
    )
    long = (
        "a class with a name of about sixty letters, which goes on",
        "非常负面的评价以及很多不满意的地方" * 2,
        "الصنف",
    )
    bars = Series("값", (1e12, 2e12, 3e12), (0.0, 1.0, 2.0))
    grid = Grid(tuple(tuple(float(a + b) for a in range(7)) for b in range(7)), "שלום")
    figures = [
        Figure(
            "some-bars", "棒", "bars", Axis("1e12"), Axis("", "category", categories=long), (bars,), "How.", "What."
        ),
        Figure(
            "some-map",
            "圖",
            "map",
            Axis("x", categories=names),
            Axis("y", categories=names),
            (),
            "How.",
            "W.",
            grid=grid,
        ),
        Passage("some-text", "文", tuple((one, float(at)) for at, one in enumerate(PIECES)), "bits", "How.", "What."),
    ]
    rows = tuple((words(visible(one)), words(one)) for one in LINES)
    table = html.table(Table((Column("a", "a", text=True), Column("b", "b", text=True)), rows))
    path = tmp_path / "page.html"
    body = html.figures(figures) + table
    path.write_text(html.page(title="文", body=body), encoding="utf-8")
    with Watched(browser, path, width=width) as seen:
        page = seen.page
        assert page.evaluate(STICKING_OUT) == []
        assert page.evaluate(OVERLAPS) == []
        # Every coloured piece has a place where it can be pointed at.
        assert (
            page.evaluate("[...document.querySelectorAll('#some-text .pieces i')].filter((i) => !i.offsetWidth).length")
            == 0
        )
        # A line of Hebrew begins at the right.
        first, last = (page.locator("#some-text .pieces i").nth(at).bounding_box() for at in (0, 3))
        assert first["x"] > last["x"]
        for kind in ("svg", "png"):
            with page.expect_download() as download:
                page.locator(f"#some-text .export button[data-save={kind}]").click()
            download.value.save_as(tmp_path / kind)
        assert (tmp_path / "png").read_bytes().startswith(b"\x89PNG")
        assert seen.wrong == []
