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
        "independent and identically distributed": "01-order.html#order-start",
        "does shuffling destroy information": "01-order.html#order-shuffle",
        "mutual information of characters at a distance": "01-order.html#order-distance",
        "chain rule factorisation": "01-order.html#order-chain",
        "reading a text backward": "01-order.html#order-direction",
        "difference between seeing and setting": "01-order",
        "why is predicting a symbol classification": "02-counting.html#counting-classes",
        "what does a perplexity of 1 mean": "02-counting.html#counting-perplexity",
        "infinite perplexity": "02-counting.html#counting-perplexity",
        "Kneser-Ney smoothing from scratch": "02-counting.html#counting-s",
        "how many rows has a table of order tau": "02-counting.html#counting-size",
        "second-order Markov chain assumption": "02-counting.html#counting-markov",
        "why do errors accumulate when predictions are fed back": "03-windows.html#window-rollout",
        "interpolation and extrapolation": "03-windows.html#window-between",
        "autoregressive least squares": "03-windows.html#window-model",
        "are the dynamics stationary": "03-windows.html#window-pairs",
        "is a window a convolution": "03-windows.html#window-forget",
        "unrolled recurrent network": "04-state.html#state-rnn",
        "one-hot vector lookup": "04-state.html#state-words",
        "torch.nn.RNN batch_first output[-1]": "04-state.html#state-torch",
        "how long does a recurrent network remember": "04-state.html#state-memory",
        "parity of bits, no window answers": "04-state.html#state-start",
    },
    "zh": {
        "独立同分布": "01-order.html#order-start",
        "打乱序列会怎样": "01-order.html#order-shuffle",
        "互信息随距离": "01-order.html#order-distance",
        "链式法则": "01-order.html#order-chain",
        "反向的条件概率有意义吗": "01-order.html#order-direction",
        "看到和设定有什么不同": "01-order",
        "为什么预测符号是分类": "02-counting.html#counting-classes",
        "困惑度等于 1 是什么意思": "02-counting.html#counting-perplexity",
        "困惑度无穷大": "02-counting.html#counting-perplexity",
        "没见过的上下文怎么平滑": "02-counting.html#counting-smoothing",
        "表格有多少行": "02-counting.html#counting-size",
        "二阶马尔可夫链": "02-counting.html#counting-markov",
        "把预测喂回去误差为什么累积": "03-windows.html#window-rollout",
        "内插和外推": "03-windows.html#window-between",
        "自回归模型的最小二乘": "03-windows.html#window-model",
        "动力学是平稳的吗": "03-windows.html#window-pairs",
        "窗口就是卷积": "03-windows.html#window-forget",
        "展开的循环神经网络": "04-state.html#state-rnn",
        "独热向量就是查表": "04-state.html#state-words",
        "batch_first 时最后一个状态": "04-state.html#state-torch",
        "循环神经网络能记多久": "04-state.html#state-memory",
        "奇偶比特窗口答不了": "04-state.html#state-start",
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
    missed = []
    with Watched(browser, sites[language] / "search.html") as seen:
        for question, answer in QUESTIONS[language].items():
            seen.page.fill("#question", question)
            first = [link.get_attribute("href") for link in seen.page.locator("#found li a").all()[:3]]
            if not any(answer in link for link in first):
                missed.append((question, first))
        assert seen.wrong == []
    assert len(missed) <= 0.1 * len(QUESTIONS[language]), missed


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


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_machine_is_live_inside_the_page(language: str, sites: dict[str, Path], browser: Any) -> None:
    with Watched(browser, sites[language] / "04-state.html", scheme="dark") as seen:
        seen.page.locator("figure.lab button").press("Enter")
        view = seen.page.frame_locator("figure.lab iframe")
        view.locator(".bar").first.wait_for()
        heading = view.locator("h2").inner_text()
        assert ("触摸状态" if language == "zh" else "Touch the state") in heading
        assert view.locator("html").get_attribute("data-theme") == "dark"
        assert view.locator("header").count() == 0
        assert seen.wrong == []
    with Watched(browser, sites[language] / "04-state.html", script=False) as seen:
        link = seen.page.locator("figure.lab a.open").get_attribute("href")
        assert (sites[language] / link.partition("#")[0]).is_file()
