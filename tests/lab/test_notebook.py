"""A run's page under a notebook's cell: a frame of its own origin; language models and classifiers."""

from pathlib import Path
from typing import Any

import pytest
from inspected_page import Watched
from machines_bundle import HOSTILE, machines_bundle

import statewise as sw
from statewise.figures import html
from statewise.lab import Lab, notebook
from statewise.specs import UserError

FIRST = ("step", "hover", "touch", "clamp")


def classifier_bundle() -> dict[str, Any]:
    """The reader of the question alone: without the question, it reads what is typed."""
    bundle = machines_bundle()
    (reader,) = (model for model in bundle["models"] if model["task"] == "classification")
    return {**bundle, "models": [{**reader, "example": "I grew up in Italy ."}], "extra": {}}


@pytest.fixture
def cell(browser: Any, tmp_path: Path) -> Any:
    """Opens what a notebook shows, and gives the frame."""
    opened: list[Watched] = []

    def show(lab: Lab) -> Any:
        path = tmp_path / "notebook.html"
        path.write_text(f"<!DOCTYPE html><title>n</title><main>{lab._repr_html_()}</main>", encoding="utf-8")
        opened.append(Watched(browser, path))
        frame = opened[0].page.locator("iframe").element_handle().content_frame()
        frame.wait_for_selector("html[data-ready=yes]")
        return frame

    yield show
    for watched in opened:
        assert watched.wrong == []
        watched.context.close()


def test_a_cell_shows_the_asked_view_and_goes_to_another(cell: Any) -> None:
    frame = cell(Lab(machines_bundle(), view="hover"))
    assert frame.locator("#view-hover").is_visible()
    frame.get_by_role("link", name="Touch the state").click()
    frame.wait_for_selector("#view-touch:visible")
    assert frame.url.startswith("about:srcdoc")
    frame.locator(".how:visible summary").click()
    frame.get_by_role("button", name="Copy").first.click()


def test_the_frame_has_no_access_to_the_notebook(cell: Any) -> None:
    frame = cell(Lab(machines_bundle()))
    assert frame.evaluate("(() => { try { return parent.document.title } catch { return 'refused' } })()") == "refused"
    assert frame.evaluate("self.origin") == "null"
    assert HOSTILE in frame.locator("body").inner_text()
    assert frame.locator("img").count() == 0


@pytest.mark.parametrize("view", FIRST)
def test_a_classifier_reads_along(view: str, cell: Any) -> None:
    frame = cell(Lab(classifier_bundle(), view=view))
    if view == "step":
        frame.wait_for_selector(".view[data-read=yes]")
        assert "answers “class" in frame.locator(".model .finding").first.inner_text()
        before = frame.locator(".next").inner_text()
        frame.locator("textarea").first.fill("I speak fluent Italy")
        frame.wait_for_function("(old) => document.querySelector('.next').innerText !== old", arg=before)
        frame.locator("textarea").first.fill("")  # nothing read: every class is equally probable
        frame.wait_for_function("() => document.querySelector('.model .finding').innerText.includes('0 B') === false")
    elif view == "hover":
        frame.locator(".letters button").nth(4).focus()
        lit = "[...document.querySelectorAll('.letters button')].map((one) => one.style.background !== '')"
        # Before the letter was chosen, those after it were lit, too.
        frame.wait_for_function(f"() => ({lit})[4] && !({lit}).slice(5).includes(true)")
        assert "bit after" in frame.locator(".finding:visible").inner_text()
    else:
        frame.wait_for_selector(".finding:has-text('answer')" if view == "touch" else ".finding:has-text('bit')")
        assert not frame.locator(".futures").first.is_visible()
        assert frame.locator(".next:visible > div").count() > 1


@pytest.mark.parametrize("allowed", [True, False])
def test_a_report_lets_the_models_of_its_frame_run(
    allowed: bool, browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notebook, "_LARGEST", 300_000)
    runs = {f"small {HOSTILE}": sw.load("shakespeare-elman"), "large": sw.load("shakespeare-lstm")}
    frame = sw.lab.frame(runs)
    assert frame is not None
    path = tmp_path / "report.html"
    path.write_text(html.page(title="r", body=frame.element, frames=[frame] if allowed else []), encoding="utf-8")
    with Watched(browser, path) as seen:
        inside = seen.page.frame_locator("iframe")
        if not allowed:
            inside.locator("noscript").wait_for(state="attached")
            assert inside.locator("textarea").count() == 0
            assert any("Content Security Policy" in said for said in seen.wrong)
            return
        inside.locator(".view[data-read=yes]").wait_for()
        assert inside.locator(".chip").all_inner_texts() == [f"small {HOSTILE} (1990)"]
        before = inside.locator(".next").inner_text()
        inside.locator("textarea").fill("To be, or n")
        inside.locator(f".next:not(:text-is({before!r}))").wait_for()
        assert seen.wrong == []


def test_a_report_without_small_models_has_no_frame() -> None:
    assert sw.lab.frame({"large": sw.load("shakespeare-lstm")}) is None


def test_what_cannot_be_shown_is_refused_at_once() -> None:
    with pytest.raises(UserError, match=r"no view 'hovver'(.|\n)*did you mean 'hover'"):
        Lab(machines_bundle(), view="hovver")
    with pytest.raises(UserError, match="too low"):
        Lab(machines_bundle(), height=3)
