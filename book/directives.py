"""What the book adds to Sphinx: boxes, exercises, pictures inside the page, folded code, formulas, its search."""

import re
from html import escape
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import Directive, directives
from notebook import VERDICTS
from reference import drop_unreadable, mark_code, name_unions
from search import write_index
from sphinx.application import Sphinx

WORDS = {
    "en": {
        "claim": "Claim", "erratum": "Erratum", "exercise": "Exercise", "check": "Check your answer:",
        "live": "Open the live machine", **VERDICTS["en"],
    },
    "zh": {
        "claim": "论断", "erratum": "勘误", "exercise": "练习", "check": "检查答案：",
        "live": "打开可操作的模型", **VERDICTS["zh"],
    },
}  # fmt: skip

LANGUAGE = {"en": "English", "zh": "中文"}
NOTEBOOK = {"en": "Notebook", "zh": "笔记本"}
SEARCH = {"en": "Search", "zh": "搜索"}
THEME = {
    "Next": "下一页",
    "Previous": "上一页",
    "Home": "首页",
    "On this page": "本页内容",
}  # which Furo has in English alone
LABELS = {
    "Back to top": "回到顶部",
    "Skip to content": "跳到正文",
    "Toggle Light / Dark / Auto color theme": "切换浅色、深色或自动主题",
    "Toggle site navigation sidebar": "打开或关闭导航栏",
    "Toggle table of contents sidebar": "打开或关闭本页目录",
    "Light mode": "浅色",
    "Dark mode": "深色",
    "Auto light/dark, in light mode": "自动，当前为浅色",
    "Auto light/dark, in dark mode": "自动，当前为深色",
    "Expand": "展开",
    "Menu": "菜单",
    "Made with": "制作工具：",
}  # which Furo writes without asking for a translation
LABEL = re.compile(rf'(?<=[>"])(\s*)({"|".join(map(re.escape, LABELS))})(?=\s*[<"])')


class BookDirective(Directive):
    has_content = True
    final_argument_whitespace = True

    @property
    def settings(self) -> Any:
        return self.state.document.settings.env

    def word(self, name: str) -> str:
        return WORDS[self.settings.config.language[:2]][name]

    def parsed(self, node: nodes.Element) -> nodes.Element:
        self.state.nested_parse(self.content, self.content_offset, node)
        return node

    def picture(self, name: str) -> str:
        path = Path(self.settings.srcdir) / name
        self.settings.note_dependency(name)
        if not path.exists():
            raise self.error(f"no block of this chapter drew {name}")
        return path.read_text(encoding="utf-8")


def raw(html: str) -> nodes.raw:
    return nodes.raw("", html, format="html")


class Box(BookDirective):
    """`claim` and `erratum`: a title, and of a claim the verdict of the experiment."""

    required_arguments = 1
    option_spec: ClassVar[Any] = {"verdict": lambda text: directives.choice(text, tuple(VERDICTS["en"]))}

    def run(self) -> list[nodes.Node]:
        verdict = self.options.get("verdict")
        badge = f'<span class="verdict {verdict}">{self.word(verdict)}</span>' if verdict else ""
        box = nodes.container(classes=["book-box", self.name])
        kind = f'<span class="kind">{self.word(self.name)}</span>'
        title = nodes.paragraph(classes=["box-title"])
        found, messages = self.state.inline_text(self.arguments[0], self.lineno)
        title += [raw(kind + " "), *found, *messages, raw(" " + badge)]
        box += title
        return [self.parsed(box)]


class Exercise(BookDirective):
    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        number = self.arguments[0]
        box = nodes.container(classes=["book-box", "exercise"], ids=[f"exercise-{number.replace('.', '-')}"])
        box += nodes.paragraph(
            "", "", raw(f'<span class="kind">{self.word("exercise")} {number}</span>'), classes=["box-title"]
        )
        self.parsed(box)
        box += raw(f'<p class="how">{self.word("check")} <code>statewise book check {number}</code></p>')
        return [box]


class Picture(BookDirective):
    """A picture that a block drew, inside the page; the content is its caption."""

    required_arguments = 1
    option_spec: ClassVar[Any] = {"alt": directives.unchanged_required}

    def run(self) -> list[nodes.Node]:
        drawn = titled(self.picture(self.arguments[0]), self.options["alt"])
        return [raw(f'<figure class="drawn">{drawn}</figure>')]


class Slider(BookDirective):
    """Pictures `NAME-VALUE.svg`, one at a time, chosen by a slider; without a script, all of them.

    The slider shows the values, or their `names` in the language of the page, with `|` between them.
    """

    required_arguments = 1
    option_spec: ClassVar[Any] = {
        "values": directives.unchanged_required,
        "names": directives.unchanged_required,
        "label": directives.unchanged_required,
        "alt": directives.unchanged_required,
    }

    def run(self) -> list[nodes.Node]:
        values, label = self.options["values"].split(), escape(self.options["label"])
        names = [name.strip() for name in self.options["names"].split("|")] if "names" in self.options else values
        if len(names) != len(values):
            raise self.error(f"{len(values)} values, but {len(names)} names")
        shown = "".join(
            f'<div class="slide" data-value="{escape(name)}"><p class="value">{label}: {escape(name)}</p>'
            + titled(self.picture(f"{self.arguments[0]}-{value}.svg"), f"{self.options['alt']} ({name})")
            + "</div>"
            for value, name in zip(values, names, strict=True)
        )
        figure = nodes.container(classes=["slider"])
        opening = f'<figure class="drawn live" data-label="{label}">{shown}'
        return [raw(opening), self.parsed(figure), raw("</figure>")]


class Live(BookDirective):
    """A view of the lab, opened by a button; without a script, a link to it. The content says what to do."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        view, words = self.arguments[0], self.word("live")
        link = f'<p><a class="open" href="lab.html#{view}" data-view="{view}">{words}</a></p>'
        return [
            raw('<figure class="drawn lab">'),
            self.parsed(nodes.container(classes=["slider"])),
            raw(f"{link}</figure>"),
        ]


class Fold(BookDirective):
    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        opening, closing = f'<details class="fold"><summary>{escape(self.arguments[0])}</summary>', "</details>"
        return [raw(opening), *self.parsed(nodes.container()).children, raw(closing)]


def titled(svg: str, title: str) -> str:
    opening, rest = svg.split(">", 1)
    width = re.search(r'\bwidth="(\d+)"', opening)
    assert width, opening
    return f'{opening} aria-label="{escape(title)}" style="min-width: min({width[1]}px, 21.5rem)">{rest}'


# ------------------------------------------------------------------ formulas


def visit_math(self: Any, node: Any) -> None:
    self.body.append(f'<span class="math">{escape(node.astext())}</span>')
    raise nodes.SkipNode


def visit_math_block(self: Any, node: Any) -> None:
    anchor = f' id="{node["ids"][0]}"' if node["ids"] else ""
    number = f'<span class="eqno">({node["number"]})</span>' if node.get("number") else ""
    self.body.append(
        f'<div class="math display"{anchor}><span class="tex">{escape(node.astext().strip())}</span>{number}</div>\n'
    )
    raise nodes.SkipNode


def page_context(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """KaTeX on pages that have formulas alone; the page in the other language."""
    if doctree is not None and next(
        iter(doctree.findall(lambda node: isinstance(node, nodes.math | nodes.math_block))), None
    ):
        app.add_css_file("katex/katex.min.css", priority=600)
        app.add_js_file("katex/katex.min.js", priority=600)
        app.add_js_file("formula.js", priority=601)
    other = "zh" if app.config.language == "en" else "en"
    if other == "en":
        context["_"] = lambda text: THEME.get(text) or app.translator.gettext(text)
    if page == "search":
        context["title"] = SEARCH[app.config.language[:2]]
    if doctree is not None:
        twin = "docs/index" if page.startswith("docs/zh/") else page  # the README is no page of the English site
        links = [f'<a href="{"../" * (page.count("/") + 1)}{other}/{twin}.html" lang="{other}">{LANGUAGE[other]}</a>']
        if re.match(r"\d", page):
            links.insert(0, f'<a href="notebooks/{page}.ipynb" download>{NOTEBOOK[app.config.language[:2]]}</a>')
        context["body"] = f'<nav class="page-tools">{"".join(links)}</nav>{context["body"]}'


def write_labels(app: Sphinx, exception: Exception | None) -> None:
    """Furo's own words around each Chinese page, in Chinese."""
    if exception is not None or not app.config.language.startswith("zh"):
        return
    for page in app.env.found_docs | {"search"}:
        path = Path(app.outdir) / f"{page}.html"
        parts = re.split("(<article.*</article>)", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        parts[::2] = [LABEL.sub(lambda found: found[1] + LABELS[found[2]], part) for part in parts[::2]]
        text = re.sub('(?<=")Toggle navigation of ', "展开或收起 ", "".join(parts))
        text = re.sub(r'(?<=title=")Link to this \w+(?=")', "此处的链接", text)
        path.write_text(text, encoding="utf-8")


def build_specs(_: Sphinx) -> None:
    """The signature of a spec is known when Pydantic has built it."""
    from statewise import specs

    for spec in vars(specs).values():
        if isinstance(spec, type) and issubclass(spec, specs.Spec):
            spec.model_rebuild()


def setup(app: Sphinx) -> dict[str, Any]:
    for name in ("claim", "erratum"):
        app.add_directive(name, Box)
    app.add_directive("exercise", Exercise)
    app.add_directive("picture", Picture)
    app.add_directive("slider", Slider)
    app.add_directive("live", Live)
    app.add_directive("fold", Fold)
    app.add_html_math_renderer("katex", inline_renderers=(visit_math, None), block_renderers=(visit_math_block, None))
    app.connect("html-page-context", page_context)
    app.connect("autodoc-process-docstring", mark_code)
    app.connect("autodoc-process-signature", name_unions)
    app.connect("doctree-read", drop_unreadable)
    app.connect("builder-inited", lambda app: setattr(app.builder, "search", False))
    app.connect("builder-inited", build_specs)
    app.connect("build-finished", write_index)
    app.connect("build-finished", write_labels)
    return {"parallel_read_safe": True}
