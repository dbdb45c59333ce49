"""The whole page from disk in Firefox: nothing is fetched, nothing complains, and every view is drawn."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from firefox import Firefox, opened_firefox
from lab_views import VIEWS

from statewise.lab import lineage, page

DRAWN = """const view = document.querySelector("section:not([hidden]) .view");
return view.querySelectorAll("svg.chart, canvas, .units button, .letters button, .asked td").length;"""
TYPED = """const box = document.querySelector("textarea");
box.value = (arguments[1] ? "" : box.value) + arguments[0];
box.dispatchEvent(new Event("input"));
return document.querySelector(".model .finding").textContent;"""
FOLLOWS = """const cards = [...document.querySelectorAll(".model")];
const card = cards.find((one) => one.textContent.startsWith(arguments[0]));
return { all: document.querySelector(".view > .finding").textContent, said: card.querySelector(".follows").textContent,
  inside: [...card.querySelectorAll(".coloured u")].map((one) => one.textContent).join(""),
  colours: new Set([...card.querySelectorAll(".coloured *")].map((one) => one.style.background)).size };"""
FIRST = "document.querySelector('section:not([hidden]) .next .symbol')?.textContent"
RAISED = """const unit = document.querySelector(".units [aria-pressed=true]");
for (let i = 0; i < 5; i += 1) unit.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowUp", bubbles: true }));"""
OWN = "`Come here,' said the Queen to Alice, and she took her by the hand and went on. `You are late,' she said."
NAUGHTY = """<!DOCTYPE html><img src="http://127.0.0.1:59999/picture.png"><script>
console.error("said"); setTimeout(() => { throw new Error("thrown"); });</script>"""


@pytest.fixture(scope="module")
def firefox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Firefox]:
    with opened_firefox(tmp_path_factory.mktemp("firefox")) as opened:
        yield opened


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lab") / "lab.html"
    path.write_text(page(lineage(), "The lab", view="step"), encoding="utf-8")
    return path


def test_what_a_page_should_not_do_is_noticed(firefox: Firefox, tmp_path: Path) -> None:
    path = tmp_path / "naughty.html"
    path.write_text(NAUGHTY, encoding="utf-8")
    firefox.open(path)
    firefox.until("document.readyState === 'complete'")
    wrong = "\n".join(firefox.wrong())
    assert 'console.error: "said"' in wrong
    assert "thrown" in wrong
    assert "request: http://127.0.0.1:59999/picture.png" in wrong


def test_every_view_is_drawn_and_nothing_complains(firefox: Firefox, whole: Path) -> None:
    firefox.open(whole)
    for language in ("en", "zh-Hans"):
        for view in VIEWS:
            firefox.run("location.hash = arguments[0];", view)
            firefox.until(f"document.querySelector('#view-{view}')?.checkVisibility()")
            firefox.until("document.querySelector('section:not([hidden]) .view:not([data-read=no])')")
            assert firefox.run(DRAWN) > 0, view
        assert firefox.run("return document.documentElement.lang;") == language
        firefox.run("document.querySelector('.switch').click();")
    assert firefox.wrong() == []


def test_a_letter_is_read(firefox: Firefox, whole: Path) -> None:
    firefox.open(whole)
    firefox.until("document.querySelector('.view[data-read=yes]')")
    before = firefox.run(TYPED, " said Alic")
    firefox.until(f"document.querySelector('.model .finding').textContent !== {before!r}")
    firefox.until("document.querySelector('.view[data-read=yes]')")
    assert firefox.run("return document.querySelector('.model:nth-child(3) .symbol').textContent;") == "e"
    assert firefox.wrong() == []


def test_the_unit_that_keeps_an_open_quote_is_named(firefox: Firefox, whole: Path) -> None:
    """Of the shipped models that are shown, the LSTM alone has such a unit; the text shows which is meant."""
    firefox.open(whole)
    firefox.until("document.querySelector('.view[data-read=yes]')")
    firefox.run("[...document.querySelectorAll('.act')].find((one) => /open quote/.test(one.textContent)).click();")
    lstm = firefox.run(FOLLOWS, "lstm")
    assert lstm["all"].startswith("In lstm, layers.0.c_BD[20] follows the underlined text (r = −0.74).")
    assert "fewer than" not in lstm["all"]
    assert lstm["said"].startswith("layers.0.c_BD[20] follows")
    assert lstm["inside"].startswith("`I can't explain myself, I'm afraid, sir,")
    assert "said Alice" not in lstm["inside"]
    assert lstm["colours"] > 20
    for other in ("markov", "elman", "transformer", "ttt_linear"):
        assert other in lstm["all"].split("No unit does in")[1]
        assert firefox.run(FOLLOWS, other)["said"].startswith("No unit follows")
    assert firefox.wrong() == []


def test_a_quotation_of_ones_own_is_searched_while_one_types(firefox: Firefox, whole: Path) -> None:
    firefox.open(whole)
    firefox.until("document.querySelector('.view[data-read=yes]')")
    firefox.run("[...document.querySelectorAll('.act')].find((one) => /open quote/.test(one.textContent)).click();")
    firefox.run(TYPED, '"Hello," said John, "how are you today?"', True)
    firefox.until("document.querySelector('.view[data-read=yes]')")
    assert firefox.run(FOLLOWS, "lstm")["all"].startswith("There is no quotation in this text")
    firefox.run(TYPED, OWN, True)
    firefox.until("document.querySelector('.view[data-read=yes]')")
    lstm = firefox.run(FOLLOWS, "lstm")
    assert lstm["inside"] == "`Come here,`You are late,"
    assert "fewer than 3 quotations" in lstm["all"]
    assert "layers.0.c_BD[20], which was found in another text, has r = −0.60 here" in lstm["said"]
    assert firefox.wrong() == []


def test_raising_that_unit_keeps_the_quotation_open(firefox: Firefox, whole: Path) -> None:
    firefox.open(whole)
    firefox.run("location.hash = 'touch';")
    firefox.until("document.querySelector('.units [aria-pressed=true]')?.ariaLabel.startsWith('layers.0.c_BD[20]')")
    firefox.until(f'{FIRST} === "\'"')
    firefox.run(RAISED)
    firefox.until(f"{FIRST} === '␣'")
    assert firefox.wrong() == []
