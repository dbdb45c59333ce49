"""The views of machines in a real browser, from disk: type, step, touch, look back, clamp, ask; by keyboard too."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from inspected_page import Watched
from machines_bundle import machines_bundle

from statewise.lab import page


@pytest.fixture(scope="module")
def machines_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("machines") / "lab.html"
    path.write_text(page(machines_bundle(), "Machines"), encoding="utf-8")
    return path


@pytest.fixture
def opened(browser: Any, machines_page: Path, request: pytest.FixtureRequest) -> Iterator[Any]:
    watched = Watched(browser, machines_page, width=1280)
    watched.page.goto(f"{machines_page.as_uri()}#{request.param}")
    watched.page.wait_for_selector("html[data-ready=yes]")
    yield watched.page
    assert watched.wrong == []
    watched.context.close()


def view(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("opened", [name], indirect=True)


def first_bars(page: Any, model: int) -> str:
    return str(page.locator(".model").nth(model).locator(".next").inner_text())


@view("step")
def test_typing_a_letter_updates_every_model(opened: Any) -> None:
    opened.wait_for_selector(".view[data-read=yes]")
    assert opened.locator(".model").count() == 3
    before = [first_bars(opened, model) for model in range(3)]
    opened.locator("textarea").first.focus()
    opened.keyboard.press("Control+End")
    opened.keyboard.type("x")
    opened.wait_for_selector(".view[data-read=yes]")
    opened.wait_for_timeout(100)
    after = [first_bars(opened, model) for model in range(3)]
    assert all(old != new for old, new in zip(before, after))
    assert "remembers 64 B" in opened.locator(".model").nth(2).inner_text()


@view("step")
def test_a_list_grows_and_a_vector_does_not(opened: Any) -> None:
    opened.get_by_label("transformer").check()
    opened.wait_for_selector(".view[data-read=yes]")
    bar = opened.get_by_label("Time step")
    sizes = []
    for at in (4, 20):
        bar.fill(str(at))
        sizes.append([opened.locator(".model .finding").nth(2 * model).inner_text() for model in (1, 3)])
    assert sizes[0][0].split(" · ")[0] == sizes[1][0].split(" · ")[0]
    assert sizes[0][1].split(" · ")[0] != sizes[1][1].split(" · ")[0]


@view("step")
def test_units_are_sorted_by_an_open_quote(opened: Any) -> None:
    opened.wait_for_selector(".view[data-read=yes]")
    opened.get_by_role("button", name="Find the open quote").click()
    assert "r = " in opened.locator(".model .quiet").nth(2).inner_text()


@view("touch")
def test_a_unit_is_changed_by_keyboard_and_the_prediction_follows(opened: Any) -> None:
    bars = opened.locator(".next:visible")
    before = bars.inner_text()
    opened.locator(".units:visible button").first.focus()
    for _ in range(30):
        opened.keyboard.press("ArrowUp")
    assert bars.inner_text() != before
    opened.get_by_role("button", name="Back to its own state").click()
    assert bars.inner_text() == before


@view("touch")
def test_the_state_of_another_text_is_pasted_and_a_row_erased(opened: Any) -> None:
    opened.locator("section:visible select").last.select_option(index=3)
    bars = opened.locator(".next:visible")
    before = bars.inner_text()
    opened.get_by_role("button", name="Erase this row").click()
    erased = bars.inner_text()
    assert erased != before
    opened.get_by_label("Another text").last.fill("xyz")
    opened.get_by_role("button", name="Paste its state").click()
    assert bars.inner_text() not in (before, erased)


@view("hover")
def test_the_past_lights_up_by_keyboard(opened: Any) -> None:
    letters = opened.locator(".letters").nth(2).locator("button")
    letters.nth(10).focus()
    pressed = opened.locator("[aria-pressed=true]")
    letters.nth(10).and_(pressed).wait_for()
    lit = "[...document.querySelectorAll('.letters')[2].querySelectorAll('button')].map((one) => one.style.background)"
    before = opened.evaluate(lit)
    assert any(before[:10])
    assert not any(before[10:]), "what comes later has no influence"
    opened.keyboard.press("ArrowRight")
    letters.nth(11).and_(pressed).wait_for()
    assert opened.evaluate(lit) != before
    assert "symbols" in opened.locator(".finding:visible").nth(2).inner_text()


@view("clamp")
def test_a_clamped_gate_changes_the_future(opened: Any) -> None:
    said = opened.locator(".finding:visible").first.inner_text()
    assert "forget_gate held at 1" in said
    opened.get_by_label("Held at").fill("0")
    assert opened.locator(".finding:visible").first.inner_text() != said


@view("ask")
def test_the_question_is_asked_from_further_away(opened: Any) -> None:
    before = opened.locator(".futures:visible").first.inner_text()
    opened.get_by_label("Words between").focus()
    opened.keyboard.press("ArrowRight")
    assert len(opened.locator(".futures:visible").first.inner_text()) > len(before)
    assert "25%" in opened.locator(".asked").inner_text()


@view("step")
def test_every_view_has_a_chinese_text(opened: Any) -> None:
    opened.get_by_role("button", name="中文").click()
    for name in ("step", "touch", "hover", "clamp", "ask"):
        opened.evaluate(f"location.hash = '{name}'")
        opened.wait_for_timeout(150)
        text = opened.locator("section:visible").inner_text()
        assert sum("\u4e00" <= letter <= "\u9fff" for letter in text) > 60, name
