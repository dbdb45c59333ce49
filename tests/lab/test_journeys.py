"""What a reader does with a view, by keyboard and by pointer, and what the page then says."""

import re
from pathlib import Path
from typing import Any

import pytest
from lab_views import opened


def press(page: Any, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


def number(text: str) -> float:
    found = re.search(r"−?\d[\d,.]*(e−?\d+)?", text)
    assert found is not None, text
    return float(found[0].replace("−", "-").replace(",", ""))


REACHED = """() => {
  const one = document.activeElement;
  return one.textContent.trim() || one.getAttribute("aria-label") || one.type;
}"""

# -------------------------------------------------------------------- attention


def translation(page: Any) -> str:
    return " ".join(page.locator(".translation button").all_inner_texts())


def test_attention_is_stepped_through_by_keyboard(browser: Any, lab_page: Path) -> None:
    with opened(browser, lab_page, "attention") as seen:
        page = seen.page
        page.locator(".stepname").first.focus()
        press(page, "Enter")
        assert page.locator(".step.later").count() == 5
        page.get_by_role("button", name="Next step").focus()
        for left in (4, 3, 2, 1, 0):
            press(page, "Enter")
            assert page.locator(".step.later").count() == left
        press(page, "Enter")  # to the next word, whose source is encoded already
        assert page.locator(".translation [aria-pressed=true]").inner_text() == "?"
        assert page.locator(".step.now").get_attribute("data-step") == "2"
        assert seen.wrong == []


def test_another_source_word_is_translated(browser: Any, lab_page: Path) -> None:
    with opened(browser, lab_page, "attention") as seen:
        page = seen.page
        assert translation(page) == "le chat noir dort ∎"
        page.get_by_label("Source word 3").select_option("robot")
        assert translation(page) == "le robot noir dort ∎"
        page.get_by_label("Source word 2").select_option("")
        assert translation(page) == "le robot dort ∎"
        page.get_by_label("location").check()
        assert translation(page) != "le robot dort ∎"  # it expects the noun in the third place
        assert seen.wrong == []


def test_a_score_is_dragged_by_keyboard(browser: Any, lab_page: Path) -> None:
    with opened(browser, lab_page, "attention") as seen:
        page = seen.page
        page.get_by_label("score of sleeps").focus()
        press(page, "End")
        assert translation(page).split()[1] == "dort"
        assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "score of sleeps"
        page.get_by_role("button", name="Undo my scores").click()
        assert translation(page) == "le chat noir dort ∎"
        assert seen.wrong == []


# -------------------------------------------------------------------- truncation


def tiles(page: Any) -> list[float]:
    return [number(text) for text in page.locator(".tile b").all_inner_texts()]


def test_cuts_are_made_and_moved_by_keyboard(browser: Any, lab_page: Path) -> None:
    with opened(browser, lab_page, "truncation") as seen:
        page = seen.page
        page.get_by_role("button", name="no cut").click()
        assert tiles(page)[:3] == [1, 0, 0]
        cuts = page.locator(".cut")
        cuts.nth(4).focus()
        press(page, "Space")
        once = tiles(page)
        assert once[1] > 0
        press(page, "ArrowRight")
        assert cuts.nth(4).get_attribute("aria-pressed") == "false"
        assert cuts.nth(5).get_attribute("aria-pressed") == "true"
        assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Cut after block 6"
        assert tiles(page)[3] < once[3]  # in the middle, both halves are shorter
        assert seen.wrong == []


def test_a_cut_is_dragged(browser: Any, lab_page: Path) -> None:
    with opened(browser, lab_page, "truncation") as seen:
        page = seen.page
        cuts = page.locator(".cut")
        assert cuts.nth(2).get_attribute("aria-pressed") == "true"
        begin, end = (cuts.nth(at).bounding_box() for at in (2, 1))
        page.mouse.move(begin["x"] + 8, begin["y"] + 10)
        page.mouse.down()
        page.mouse.move(end["x"] + 8, end["y"] + 10, steps=5)
        page.mouse.up()
        assert [cuts.nth(at).get_attribute("aria-pressed") for at in (1, 2)] == ["true", "false"]
        assert seen.wrong == []


def test_an_unbiased_truncation_has_no_bias(browser: Any, lab_page: Path) -> None:
    with opened(browser, lab_page, "truncation") as seen:
        page = seen.page
        assert tiles(page)[1] > 0
        page.get_by_role("radio", name="unbiased").check()
        assert tiles(page)[1] == 0
        assert tiles(page)[2] > 0
        assert seen.wrong == []


# -------------------------------------------------------------------- eigenvalues


def test_an_eigenvalue_moves_by_keyboard(browser: Any, lab_page: Path) -> None:
    with opened(browser, lab_page, "eigenvalues") as seen:
        page, handle = seen.page, seen.page.locator(".handle").first
        handle.focus()
        for _ in range(20):
            press(page, "ArrowRight")
        assert handle.get_attribute("aria-valuetext") == "1.05 + 0.49i, |λ| = 1.16"
        assert "1.05 + 0.49i" in page.locator("#eigenvalues-plane .finding").inner_text()
        press(page, "Shift+ArrowDown")
        assert handle.get_attribute("aria-valuetext") == "1.05 + 0.39i, |λ| = 1.12"
        assert seen.wrong == []


def test_an_eigenvalue_is_dragged_onto_the_real_axis(browser: Any, lab_page: Path) -> None:
    with opened(browser, lab_page, "eigenvalues") as seen:
        page, handles = seen.page, seen.page.locator(".handle")
        box, plane = handles.first.bounding_box(), page.locator("#eigenvalues-plane svg").bounding_box()
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        page.mouse.down()
        page.mouse.move(plane["x"] + plane["width"] * 0.6, plane["y"] + plane["height"] / 2, steps=5)
        page.mouse.up()
        assert all("i" not in handle.get_attribute("aria-valuetext") for handle in handles.all())
        page.get_by_role("button", name="explodes").click()
        assert number(page.locator("#eigenvalues-plane .finding").inner_text().split("gradient is")[1]) > 1
        assert seen.wrong == []


# -------------------------------------------------------------------- train


def losses(page: Any) -> tuple[float, float]:
    """Updates, and the loss after them."""
    found = re.search(
        r"After (\d+) updates the loss is (\S+);",
        page.locator("#view section:not([hidden]) .finding").first.inner_text(),
    )
    assert found is not None
    return float(found[1]), float(found[2].replace("−", "-"))


def test_a_network_is_trained(browser: Any, lab_page: Path) -> None:
    with opened(browser, lab_page, "train") as seen:
        page = seen.page
        page.get_by_label("parity of bits").check()
        begun = losses(page)
        page.get_by_role("button", name="One update").click()
        assert losses(page)[0] == begun[0] + 1
        page.locator(".act.main").focus()
        press(page, "Space")
        for _ in range(300):
            page.wait_for_timeout(100)
            if losses(page)[0] > 400:
                break
        press(page, "Space")
        assert losses(page)[1] < begun[1] / 2
        stopped = losses(page)
        page.wait_for_timeout(200)
        assert losses(page) == stopped
        assert seen.wrong == []


def test_another_truncation_starts_again(browser: Any, lab_page: Path) -> None:
    """What was learned with longer gradients would hide that shorter ones do not reach the symbol."""
    with opened(browser, lab_page, "train") as seen:
        whole = losses(seen.page)
        seen.page.get_by_label("Truncation: steps between cuts").fill("3")
        short = losses(seen.page)
        assert short[0] == whole[0]
        assert short[1] > 5 * whole[1]
        assert seen.wrong == []


def test_training_stops_when_another_view_is_shown(browser: Any, lab_page: Path) -> None:
    with opened(browser, lab_page, "train") as seen:
        page = seen.page
        page.locator(".act.main").click()
        page.evaluate("location.hash = 'bill'")
        page.wait_for_selector("#view-bill")
        page.evaluate("location.hash = 'train'")
        page.wait_for_selector("#view-train:visible")
        assert page.locator(".act.main").inner_text() == "Train"
        assert seen.wrong == []


# -------------------------------------------------------------------- bill


def test_the_bill_follows_the_context(browser: Any, lab_page: Path) -> None:
    with opened(browser, lab_page, "bill") as seen:
        page = seen.page
        row = page.locator("table.bill tbody tr", has_text="transformer")
        before = row.locator("td").nth(2).inner_text()
        page.get_by_label("context, tokens").focus()
        press(page, "End")
        assert row.locator("td").nth(2).inner_text() != before
        assert "131,072" in page.locator("#bill-chart .finding").inner_text()
        curves = page.locator("#bill-chart .series").count()
        page.get_by_label("draw gru").check()
        assert page.locator("#bill-chart .series").count() == curves + 1
        page.get_by_label("training memory").check()
        assert "training memory" in page.locator("#bill-chart svg").get_attribute("aria-label")
        assert seen.wrong == []


# -------------------------------------------------------------------- the page


def test_everything_is_reached_by_keyboard_alone(browser: Any, lab_page: Path) -> None:
    with opened(browser, lab_page, "eigenvalues") as seen:
        page = seen.page
        press(page, "Tab", "Enter")  # the first thing that is reached skips the rest
        assert page.evaluate("document.activeElement.id") == "view-eigenvalues"
        page.reload()
        page.wait_for_selector("html[data-ready]")
        reached = []
        for _ in range(60):
            press(page, "Tab")
            reached.append(page.evaluate(REACHED))
        for wanted in ("Skip to the view", "中文", "Dark", "How it is computed", "CSV"):
            assert wanted in reached, wanted
        assert any("Eigenvalue 1" in one for one in reached)
        page.get_by_role("link", name="The bill").focus()
        press(page, "Enter")
        page.wait_for_selector("#view-bill:visible")
        page.go_back()
        page.wait_for_selector("#view-eigenvalues:visible")
        assert seen.wrong == []


@pytest.mark.parametrize("width", [375, 1280])
def test_a_view_explains_itself(width: int, browser: Any, lab_page: Path) -> None:
    with opened(browser, lab_page, "bill", width=width) as seen:
        page = seen.page
        if width == 375:
            page.locator("nav select").select_option("train")
            page.wait_for_selector("#view-train:visible")
        page.locator("section:not([hidden]) .how summary").click()
        shown = page.locator("section:not([hidden]) .how").inner_text()
        assert "Equation" in shown
        assert "import" in shown
        assert "statewise " in shown
        assert seen.wrong == []
