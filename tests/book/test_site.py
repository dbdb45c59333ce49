"""Both sites, as `make book` builds them, opened from disk: nothing is fetched, questions find their page, all fits."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from chapter import BOOK, LANGUAGES, chapters
from inspected_page import Watched

pytestmark = pytest.mark.slow
pytest.importorskip("sphinx", reason="no Sphinx: pip install -e '.[book]'")
PAGES = ["index", "glossary", "search", *(page.name for page in chapters())]
MOST_BYTES, FIRST_PAGE = 25 * 2**20, 300 * 2**10

# What a reader asks, and the page (with its section, where one is right) that answers.
QUESTIONS = {
    "en": {
        "independent and identically distributed": "01-order",
        "does shuffling destroy information": "01-order.html#order-shuffle",
        "mutual information of characters at a distance": "01-order.html#order-distance",
        "chain rule factorisation": "01-order.html#order-chain",
        "reading a text backward": "01-order.html#order-direction",
    },
    "zh": {
        "独立同分布": "01-order",
        "打乱序列会怎样": "01-order.html#order-shuffle",
        "互信息随距离": "01-order.html#order-distance",
        "链式法则": "01-order.html#order-chain",
        "反向的条件概率有意义吗": "01-order.html#order-direction",
    },
}


@pytest.fixture(scope="module")
def sites() -> dict[str, Path]:
    paths = os.pathsep.join([str(BOOK.parent), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, str(BOOK / "build.py")]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {language: BOOK / "_build" / language for language in LANGUAGES}


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_site_is_small(language: str, sites: dict[str, Path]) -> None:
    assert sum(path.stat().st_size for path in sites[language].rglob("*") if path.is_file()) < MOST_BYTES


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("name", PAGES)
def test_a_page_opens_from_disk(name: str, language: str, sites: dict[str, Path], browser: Any) -> None:
    for width, scheme in ((390, "dark"), (1280, "light")):
        with Watched(browser, sites[language] / f"{name}.html", width=width, scheme=scheme) as seen:
            page = seen.page
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{name} is wider than {width}"
            assert page.locator(".katex-error").count() == 0
            assert page.locator("span.math, div.math .tex").count() == page.locator(".katex-html").count()
            for drawn in page.locator("figure.drawn svg").all():
                assert drawn.get_attribute("aria-label")
            assert seen.wrong == []


def test_the_first_page_is_light(sites: dict[str, Path], browser: Any) -> None:
    with Watched(browser, sites["en"] / "index.html") as seen:
        names = seen.page.evaluate("performance.getEntriesByType('resource').map((one) => one.name)")
    files = {Path(name.removeprefix("file://").partition("?")[0]) for name in names} | {sites["en"] / "index.html"}
    assert sum(path.stat().st_size for path in files) < FIRST_PAGE


@pytest.mark.parametrize("language", LANGUAGES)
def test_questions_find_their_page(language: str, sites: dict[str, Path], browser: Any) -> None:
    right = 0
    with Watched(browser, sites[language] / "search.html") as seen:
        for question, answer in QUESTIONS[language].items():
            seen.page.fill("#question", question)
            first = [link.get_attribute("href") for link in seen.page.locator("#found li a").all()[:3]]
            right += any(answer in link for link in first)
        assert seen.wrong == []
    assert right >= 0.9 * len(QUESTIONS[language])


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_slider_is_moved_by_keys(language: str, sites: dict[str, Path], browser: Any) -> None:
    with Watched(browser, sites[language] / "01-order.html") as seen:
        figure = seen.page.locator("figure.live").first
        assert figure.locator(".slide:visible").count() == 1
        before = figure.locator("output").inner_text()
        figure.locator("input").focus()
        seen.page.keyboard.press("ArrowRight")
        assert figure.locator("output").inner_text() != before
        assert figure.locator(".slide:visible").count() == 1
    with Watched(browser, sites[language] / "01-order.html", script=False) as seen:
        slides = seen.page.locator("figure.live").first.locator(".slide")
        assert slides.count() > 1
        assert all(slide.is_visible() for slide in slides.all())
