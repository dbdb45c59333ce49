"""Both sites, as `make book` builds them, opened from disk: nothing is fetched, questions find their page, all fits."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from chapter import BOOK, LANGUAGES, chapters
from inspected_page import OVERLAPS, Watched

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]  # the first test waits for the whole build
pytest.importorskip("sphinx", reason="no Sphinx: pip install -e '.[book]'")
CHAPTERS = [page.name for page in chapters()]
PAGES = ["index", "glossary", "search", "solutions", "errata", "laws", *CHAPTERS]
MOST_BYTES, FIRST_PAGE = 25 * 2**20, 300 * 2**10

# Formulas whose punctuation begins the next line.
PARTED = """[...document.querySelectorAll("span.math")].filter((formula) => {
  const behind = formula.nextSibling, range = document.createRange();
  const mark = behind?.nodeType === Node.TEXT_NODE ? behind.data.search(/[^\\u2060]/) : -1;
  if (mark < 0 || !/[,.;:!?)，。；：、！？）”]/.test(behind.data[mark])) return false;
  range.setStart(behind, mark);
  range.setEnd(behind, mark + 1);
  const last = [...formula.querySelectorAll(".base")].at(-1);
  return range.getBoundingClientRect().left < last.getBoundingClientRect().right - 2;
}).map((formula) => formula.textContent)"""

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
        "truncated backpropagation through time": "05-training.html#training-cut",
        "what does detach do": "05-training",
        "why do gradients vanish": "06-fading",
        "eigenvalues of the recurrent matrix": "06-fading.html#fading-powers",
        "exploding gradients": "06-fading",
        "leaky units and echo state networks": "06-fading.html#fading-leak",
        "LSTM forget gate": "07-gates",
        "difference between GRU and LSTM": "07-gates.html#gates-gru",
        "what is teacher forcing": "08-forcing",
        "exposure bias": "08-forcing",
        "scheduled sampling": "08-forcing.html#forcing-mix",
        "when does generation stop": "09-ending",
        "predict the length of a sequence": "09-ending",
        "bidirectional LSTM": "10-shapes.html#shapes-both",
        "recursive network on a parse tree": "10-shapes",
        "many to one classification": "11-tasks.html#tasks-five",
        "vector as initial state or as input at every step": "11-tasks.html#tasks-condition",
        "why does translation get worse for long sentences": "12-vector",
        "context vector of an encoder-decoder": "12-vector",
        "Bahdanau attention": "13-attention",
        "additive and dot product scores": "13-attention.html#attention-scores",
        "movie recommendation by dot product": "14-self.html#self-movies",
        "is self-attention permutation equivariant": "14-self.html#self-set",
        "why divide by the square root of k": "15-queries.html#queries-root",
        "positional encoding": "15-queries.html#queries-positions",
        "multi-head attention": "15-queries.html#queries-heads",
        "memory of the KV cache": "16-list",
        "cost of attention is quadratic": "16-list.html#list-cost",
        "test-time training": "17-memories",
        "delta rule and linear attention": "17-memories",
        "is an RNN or a Transformer faster": "18-bill",
        "path length between two tokens": "18-bill.html#bill-path",
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
        "截断的通过时间反向传播": "05-training.html#training-cut",
        "detach 有什么用": "05-training",
        "梯度为什么会消失": "06-fading",
        "循环矩阵的特征值": "06-fading.html#fading-powers",
        "梯度爆炸": "06-fading",
        "漏积分单元和回声状态网络": "06-fading.html#fading-leak",
        "LSTM 的遗忘门": "07-gates",
        "GRU 和 LSTM 的区别": "07-gates.html#gates-gru",
        "什么是教师强制": "08-forcing",
        "曝光偏差": "08-forcing",
        "计划采样": "08-forcing.html#forcing-mix",
        "生成什么时候停止": "09-ending",
        "预测序列的长度": "09-ending",
        "双向 LSTM": "10-shapes.html#shapes-both",
        "语法树上的递归神经网络": "10-shapes",
        "多对一 文本分类": "11-tasks.html#tasks-five",
        "向量作为初始状态还是每一步的输入": "11-tasks.html#tasks-condition",
        "为什么长句子翻译得差": "12-vector",
        "编码器-解码器的上下文向量": "12-vector",
        "Bahdanau 注意力": "13-attention",
        "加性注意力和点积注意力": "13-attention.html#attention-scores",
        "用点积推荐电影": "14-self.html#self-movies",
        "自注意力与顺序无关吗": "14-self.html#self-set",
        "为什么要除以根号 k": "15-queries.html#queries-root",
        "位置编码": "15-queries.html#queries-positions",
        "多头注意力": "15-queries.html#queries-heads",
        "KV 缓存占多少内存": "16-list",
        "注意力的计算量是长度的平方": "16-list.html#list-cost",
        "测试时训练": "17-memories",
        "delta 规则和线性注意力": "17-memories",
        "RNN 和 Transformer 哪个快": "18-bill",
        "两个词元之间的路径长度": "18-bill.html#bill-path",
    },
}


@pytest.fixture(scope="module")
def sites(shared: Callable[..., Path]) -> dict[str, Path]:
    """Built once: a page must not be read by one process while another writes it."""

    def build(_: Path) -> None:
        paths = os.pathsep.join([str(BOOK.parent), os.environ.get("PYTHONPATH", "")])
        command = [sys.executable, str(BOOK / "build.py")]
        environment = {**os.environ, "PYTHONPATH": paths}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    shared("sites", build, patience=1200)
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
            assert page.evaluate(PARTED) == []
            for drawn in page.locator("figure.drawn svg").all():
                assert drawn.get_attribute("aria-label")
            content = page.content()
            assert ("Skip to content" in content) == ("Made with" in content) == (language == "en")
            assert "Link to this" not in content or language == "en"
            page.evaluate("for (const one of document.querySelectorAll('.slide')) one.hidden = false")
            assert [found for found in page.evaluate(OVERLAPS) if '" on "' in found] == []
            assert seen.wrong == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_first_page_is_light(language: str, sites: dict[str, Path], browser: Any) -> None:
    asked: list[str] = []
    with Watched(browser, sites[language] / "index.html") as seen:
        seen.page.on("request", lambda request: asked.append(request.url))
        seen.page.reload()
    files = {Path(unquote(url.removeprefix("file://").partition("?")[0])) for url in asked}
    assert {"index.html", "book.css", "book.js"} <= {path.name for path in files}
    assert sum(path.stat().st_size for path in files) < FIRST_PAGE


@pytest.mark.parametrize("language", LANGUAGES)
def test_questions_find_their_page(language: str, sites: dict[str, Path], browser: Any) -> None:
    missed = []
    with Watched(browser, sites[language] / "search.html") as seen:
        assert seen.page.locator("h1").inner_text() == {"en": "Search", "zh": "搜索"}[language]
        assert seen.page.title().startswith(seen.page.locator("h1").inner_text())
        for question, answer in QUESTIONS[language].items():
            seen.page.fill("#question", question)
            assert not re.search(r"\\begin|<\w+ class", seen.page.locator("#found").inner_text())
            first = [link.get_attribute("href") for link in seen.page.locator("#found li a").all()[:3]]
            if not any(answer in link for link in first):
                missed.append((question, first))
        assert seen.wrong == []
    assert len(missed) <= 0.1 * len(QUESTIONS[language]), missed


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("name", CHAPTERS)
def test_sliders_are_moved_by_keys_and_show_all_pictures_without_a_script(
    name: str, language: str, sites: dict[str, Path], browser: Any
) -> None:
    with Watched(browser, sites[language] / f"{name}.html") as seen:
        figures = seen.page.locator("figure.live").all()
        assert figures
        for figure in figures:
            said, figure_input = [figure.locator("output").inner_text()], figure.locator("input")
            figure_input.focus()
            for _ in range(int(figure_input.get_attribute("max"))):
                assert figure.locator(".slide:visible").count() == 1
                seen.page.keyboard.press("ArrowRight")
                said.append(figure.locator("output").inner_text())
            assert said == [slide.get_attribute("data-value") for slide in figure.locator(".slide").all()]
    with Watched(browser, sites[language] / f"{name}.html", script=False) as seen:
        slides = seen.page.locator("figure.live .slide")
        assert slides.count() >= 2
        assert all(slide.is_visible() for slide in slides.all())


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_link_leads_to_an_anchor(language: str, sites: dict[str, Path]) -> None:
    pages = {path: Anchors(path) for path in sorted(sites[language].rglob("*.html"))}
    assert len(pages) > 80
    broken = set()
    for path, page in pages.items():
        for link in page.links:
            address, _, anchor = link.partition("#")
            if re.match(r"[a-z]+:", address):
                continue
            target = (path.parent / unquote(address.partition("?")[0])).resolve() if address else path
            known = pages[target].ids if target in pages else set()
            missing = anchor and target.name != "lab.html" and unquote(anchor) not in known  # the lab's are its views
            if not target.is_file() or missing:
                broken.add((path.relative_to(sites[language]).as_posix(), link))
    assert not broken


class Anchors(HTMLParser):
    """The addresses that a page links to, and its own anchors."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        self.ids.update(value for key in ("id", "name") if (value := named.get(key)))
        if tag == "a" and (link := named.get("href")):
            self.links.append(link)


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
