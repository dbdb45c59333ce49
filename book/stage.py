"""Write the sources of one language's site: chapters with their results, the reference pages, the notebooks."""

import hashlib
import json
import re
import shutil
import tomllib
from collections.abc import Iterator
from functools import cache
from html import escape, unescape
from pathlib import Path
from typing import NamedTuple

from chapter import BOOK, FORMULA, ROOT, Page, chapters, pages
from notebook import notebook
from reference import anchor_in, stage_api, stage_docs
from run import Result, results

BUILD = BOOK / "_build"
LIVE = (
    "shakespeare-elman",
    "shakespeare-markov",
    "shakespeare-transformer",
    "shakespeare-ttt",
)  # runs that come with the package
CHECKED = {"en": "✓ checked", "zh": "✓ 已验证"}
FOLDED = {"en": "Code of the drawing", "zh": "画这幅图的代码"}
PICTURE = re.compile(r"^!\[(.+)\]\(([\w-]+\.svg)\)$", re.MULTILINE)
DOCS_LINK = re.compile(r"\]\(\.\./\.\./docs/([^)#]+)(#[^)]*)?\)")
# Chinese has no spaces: a line that ends in Chinese, plain, bold or of a link, continues in the next, which may be
# indented below an item of a list.
SOFT_BREAK = re.compile(
    r"([\u3000-\u9fff\uff00-\uffef”]|[\u4e00-\u9fff](?:\*\*|\]\([^)\s]*\)))\n *"
    r"(?=[\u3001-\u9fff\uff00-\uffef“]|(?:\[|\*\*)[\u4e00-\u9fff])"
)
CHAPTER_NUMBER = re.compile(r"(?<=第) (\d+) (?=章)")
TEXT_NODE = re.compile(r">([^<>]+)<")
NUMBER = re.compile(r"-?\d(?:[\d,]*\d)?(?:\.\d+)?(?:e[-+]?\d+)?%?")
SEPARATORS = ("\n", ": ", ", ")
HAN = re.compile("[\u4e00-\u9fff]")
WORDS = re.compile(r"[A-Za-z]{2,}")


def stage(language: str) -> Path:
    """The folder that Sphinx reads."""
    folder = BUILD / "source" / language
    shutil.rmtree(folder, ignore_errors=True)
    notebooks = folder / "extra" / "notebooks"
    notebooks.mkdir(parents=True)
    english = {page.name: page for page in pages("en")}
    for page in pages(language):
        done = results(english[page.name])
        for name, drawn in pictures(done).items():
            (folder / page.name).mkdir(exist_ok=True)
            inside = drawn if language == "en" else translated(drawn)
            (folder / page.name / name).write_text(inline(inside), encoding="utf-8")
        (folder / f"{page.name}.md").write_text(staged(page, done), encoding="utf-8")
        if done:
            target = notebooks / f"{page.name}.ipynb"
            target.write_text(json.dumps(notebook(page, done), ensure_ascii=False, indent=1), encoding="utf-8")
    (folder / "glossary.md").write_text(glossary(language), encoding="utf-8")
    (folder / "solutions.md").write_text(solutions(language), encoding="utf-8")
    stage_docs(folder / "docs", language)
    stage_api(folder / "api", language)
    shutil.copy(lab_page(), folder / "extra" / "lab.html")
    (BUILD / "static").mkdir(exist_ok=True)
    (BUILD / "static" / "chart.css").write_text(chart_css(), encoding="utf-8")
    return folder


def pictures(done: list[Result]) -> dict[str, str]:
    return {name: drawn for result in done for name, drawn in result.pictures.items()}


def staged(page: Page, done: list[Result]) -> str:
    """The page with what its blocks printed, links between formulas and their checks, and its pictures by name."""
    checks = {name for block in page.blocks for name in block.checks}
    parts, at = [], 0
    for block, result in zip(page.blocks, done, strict=True):
        parts.append(prose(page, page.text[at : block.span[0]], checks))
        parts += [f"(check-{name})=\n" for name in block.checks]
        code = f"```python\n{block.code}```"
        parts.append(f":::::{{fold}} {FOLDED[page.language]}\n{code}\n:::::" if block.folded else code)
        if result.printed:
            parts.append(f"\n\n```{{code-block}} text\n:class: output\n\n{result.printed.rstrip()}\n```")
        at = block.span[1]
    return "".join([*parts, prose(page, page.text[at:], checks)])


def prose(page: Page, text: str, checks: set[str]) -> str:
    def formula(found: re.Match[str]) -> str:
        label = found[2]
        return f"{found[0]}\n\n[{CHECKED[page.language]}](#check-{label}){{.checked}}" if label in checks else found[0]

    text = FORMULA.sub(formula, text)
    text = PICTURE.sub(lambda found: f":::{{picture}} {page.name}/{found[2]}\n:alt: {found[1]}\n:::", text)
    text = re.sub(r"^(:::\{slider\} )", rf"\g<1>{page.name}/", text, flags=re.MULTILINE)
    # The first line of a box is its title; it is not continued by the next.
    text = re.sub(r"(^:{3,}\{.*\n)|" + SOFT_BREAK.pattern, lambda found: found[1] or found[2], text, flags=re.MULTILINE)
    text = CHAPTER_NUMBER.sub("\u00a0\\1\u00a0", text)  # never a line for each of its three parts
    return DOCS_LINK.sub(
        lambda found: f"](docs/{found[1]}{anchor_in(page.language, Path(found[1]), found[2] or '')})", text
    )


def inline(svg: str) -> str:
    """A picture as part of a page, which gives it the colours of its theme and a title in its own language."""
    svg = re.sub(r"<style>.*?</style>", "", svg, flags=re.DOTALL)
    svg = svg.replace('<rect width="100%" height="100%" fill="#fff"/>', "", 1).replace(
        ' font-family="sans-serif"', "", 1
    )
    svg = re.sub(r"<title>.*?</title>", "", svg, count=1, flags=re.DOTALL)
    return re.sub(r"<desc>.*?</desc>", "", svg, count=1, flags=re.DOTALL).strip()


def chart_css() -> str:
    """The rules of `statewise.figures` for what is drawn, and its colours, by the theme of the site."""
    css = (ROOT / "statewise" / "figures" / "style.css").read_text(encoding="utf-8")
    light, dark = ("; ".join(re.findall(r"--[\w-]+: #\w+", part)) for part in css.split("@media", 2)[:2])
    rules = [line for line in css.splitlines() if re.match(r"\.chart [^{]|\.c\d", line)]
    themes = [
        f":root {{ {light}; }}",
        f'body[data-theme="dark"] {{ {dark}; }}',
        f'@media (prefers-color-scheme: dark) {{ body[data-theme="auto"] {{ {dark}; }} }}',
    ]
    return "\n".join([*themes, *rules]) + "\n"


def lab_page() -> Path:
    """The lab with the models that live figures show; made again when they or the package have changed."""
    made, key = BUILD / "lab.html", hashlib.sha256(" ".join(LIVE).encode())
    for path in sorted((ROOT / "statewise").rglob("*")):
        if path.suffix in (".py", ".js", ".css"):
            key.update(path.read_bytes())
    mark = f"<!-- {key.hexdigest()} -->\n"
    if not made.exists() or not made.read_text(encoding="utf-8").endswith(mark):
        from statewise import load
        from statewise.lab import bundle, page

        shown = page(bundle([load(name) for name in LIVE]), "statewise")
        made.write_text(shown + mark, encoding="utf-8")
    return made


# ------------------------------------------------------------------ the glossary


class Term(NamedTuple):
    en: str
    zh: str
    meaning_en: str
    meaning_zh: str
    section: str


def terms() -> list[Term]:
    return [Term(**term) for term in tomllib.loads((BOOK / "terms.toml").read_text(encoding="utf-8"))["term"]]


GLOSSARY = {
    "en": ("Glossary", "term", "Chinese", "meaning", "introduced in"),
    "zh": ("术语表", "术语", "英文", "含义", "首次出现"),
}


def glossary(language: str) -> str:
    title, *heads = GLOSSARY[language]
    lines = [f"# {title}\n", f"| {' | '.join(heads)} |", "|---|---|---|---|"]
    for term in sorted(terms(), key=lambda term: term.en.lower()):
        own, other = (term.en, term.zh) if language == "en" else (term.zh, term.en)
        meaning = term.meaning_en if language == "en" else term.meaning_zh
        lines.append(f"| {own} | {other} | {meaning} | [](#{term.section}) |")
    return "\n".join(lines) + "\n"


SOLUTIONS = {
    "en": ("Solutions", "Answers that pass the checks. Yours may look different and pass, too."),
    "zh": ("练习答案", "下面的答案都能通过检查。你的写法可以不同，同样能通过。"),
}


def solutions(language: str) -> str:
    """The answers to the exercises of every chapter, under its title."""
    title, words = SOLUTIONS[language]
    parts = [f"# {title}\n\n{words}\n"]
    for page in chapters(language):
        source = (BOOK / "exercises" / f"solutions_{page.name[:2]}.py").read_text(encoding="utf-8")
        code = source.split('"""\n', 1)[1].strip()  # without its docstring
        parts.append(f"## {page.title}\n\n```python\n{code}\n```\n")
    return "\n".join(parts)


# ------------------------------------------------------------------ the words inside pictures


@cache
def picture_words() -> dict[str, str]:
    """English text of pictures, with `#` for numbers: the Chinese one."""
    return tomllib.loads((BOOK / "zh" / "pictures.toml").read_text(encoding="utf-8"))


def texts(svg: str) -> Iterator[str]:
    """What the text nodes of a picture say in words, with `#` for numbers."""
    for found in TEXT_NODE.finditer(inline(svg)):
        yield from (masked for piece in pieces(unescape(found[1])) if WORDS.search(masked := NUMBER.sub("#", piece)))


def pieces(text: str, separators: tuple[str, ...] = SEPARATORS) -> list[str]:
    """A text, or if the table does not have it, its lines; of those, what stands before and after a colon, a comma."""
    if not separators or NUMBER.sub("#", text) in picture_words():
        return [text]
    first, *rest = separators
    return [piece for part in text.split(first) for piece in (*pieces(part, tuple(rest)), first)][:-1]


def translated(svg: str) -> str:
    return TEXT_NODE.sub(lambda found: f">{escape(translate(unescape(found[1])), quote=False)}<", svg)


def translate(text: str) -> str:
    chinese = "".join(map(_translate_piece, pieces(text)))
    if not HAN.search(chinese):
        return chinese
    return chinese.replace(": ", "：").replace(", ", "，")


def _translate_piece(text: str) -> str:
    numbers = iter(NUMBER.findall(text))
    chinese = picture_words().get(NUMBER.sub("#", text))
    return text if chinese is None else re.sub("#", lambda _: next(numbers), chinese)
