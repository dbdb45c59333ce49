"""The index of a site: sections and their terms, as a script that a page opened from disk can load.

English words lose their endings; Chinese text is cut into pairs of neighbouring characters, so that a phrase is found
however a dictionary would cut it. Prose explains, code repeats: a term counts once in all code of a section. The
section that introduces a term of the glossary, or whose subject readers call by another word, answers a question for it
best. `static/search.js` cuts a question in the same way and ranks sections by BM25.
"""

import json
import re
import tomllib
import unicodedata
from collections import Counter
from collections.abc import Container
from pathlib import Path
from typing import Any, NamedTuple

from chapter import BOOK
from docutils import nodes
from stage import terms as glossary

TERM = re.compile(r"[a-z0-9_]+|[\u4e00-\u9fff]+")
ENDING = re.compile(r"(?:ations?|ings?|ed|es|s|ly|e)$")
TITLE, PAGE_TITLE, INTRODUCED = 6, 3, 6  # how many times the words of a title count, and of a term that it introduces
SHOWN = 400  # characters of a section that results show
COMMAND = re.compile(r"\\([A-Za-z]+|.)")
SYMBOLS = {
    "mid": "|", "dots": "…", "cdots": "…", "top": "⊤", "to": "→", "le": "≤", "approx": "≈", "pm": "±", "cdot": "·",
    "odot": "⊙", "partial": "∂", "nabla": "∇", "sqrt": "√", "infty": "∞", "ell": "ℓ", "lVert": "‖", "rVert": "‖",
    "varphi": "φ", "varepsilon": "ε", "lambda": "λ", "Lambda": "Λ",
    **dict.fromkeys(["operatorname", "text", "mathrm", "hat", "bar", "overrightarrow", "overleftarrow", "tfrac"], ""),
}  # fmt: skip


def terms(text: str) -> list[str]:
    found = []
    for term in TERM.findall(text.lower()):
        if term[0] >= "\u4e00":
            found += [term[at : at + 2] for at in range(len(term) - 1)] or [term]
        else:
            short = ENDING.sub("", term)
            found.append(short if len(short) > 2 else term)
    return found


class Section(NamedTuple):
    anchor: str  # its label, if it has one
    title: str
    prose: str
    code: str
    shown: str  # the prose, its formulas without TeX


def sections(doctree: nodes.document, labels: Container[str]) -> list[Section]:
    """Every section with its own text, without that of its subsections."""
    found = []
    for section in doctree.findall(nodes.section):
        title = next(iter(section.findall(nodes.title))).astext()
        left_out = nodes.section | nodes.title | nodes.raw
        own = [child for child in section.children if not isinstance(child, left_out)]
        anchor = next((name for name in section["ids"] if name in labels), section["ids"][-1])
        code = [child for child in own if isinstance(child, nodes.literal_block)]
        prose = [child for child in own if not isinstance(child, nodes.literal_block)]
        found.append(Section(anchor, title, _text(prose), _text(code), _text(prose, tex=False)[:SHOWN]))
    return found


def _text(parts: list[nodes.Element], *, tex: bool = True) -> str:
    """Of a section's nodes, without displayed formulas, the marks of their checks, and HTML."""
    texts = []
    for part in (part.deepcopy() for part in parts if not isinstance(part, nodes.math_block)):
        for node in list(part.findall(nodes.Element)):
            if node is not part and (isinstance(node, nodes.raw | nodes.math_block) or "checked" in node["classes"]):
                node.parent.remove(node)
            elif not tex and isinstance(node, nodes.math):
                node.parent.replace(node, nodes.Text(_plain(node.astext())))
        texts.append(part.astext())
    return " ".join(" ".join(texts).split())


def _plain(tex: str) -> str:
    """A formula as one can write it in a line of text: `p(x_t | x_<t)`."""

    def symbol(found: re.Match[str]) -> str:
        name = found[1]
        size = "CAPITAL" if name[:1].isupper() else "SMALL"
        try:
            greek = unicodedata.lookup(f"GREEK {size} LETTER {name}")
        except KeyError:
            greek = name if name.isalpha() else ""
        return SYMBOLS.get(name, greek)

    grouped = re.sub(r"(?<=[_^])\{([^{}]{2,})\}", r"(\1)", COMMAND.sub(symbol, tex))
    return re.sub("[{}]", "", grouped).strip()


def write_index(app: Any, exception: Exception | None) -> None:
    if exception is not None or app.builder.format != "html":
        return
    entries: list[list[str]] = []
    lengths: list[int] = []
    postings: dict[str, list[int]] = {}
    introduced: dict[str, str] = tomllib.loads((BOOK / "terms.toml").read_text(encoding="utf-8"))["words"]
    for term in glossary():
        introduced[term.section] = f"{introduced.get(term.section, '')} {term.en} {term.zh}"
    for page in sorted(app.env.found_docs):
        page_title = app.env.titles[page].astext()
        for section in sections(app.env.get_doctree(page), app.env.domaindata["std"]["anonlabels"]):
            counts = Counter(terms(section.prose))
            counts.update(set(terms(section.code)))
            for name in terms(section.title):
                counts[name] += TITLE
            for name in terms(page_title):
                counts[name] += PAGE_TITLE
            for name in set(terms(introduced.get(section.anchor, ""))):
                counts[name] += INTRODUCED
            for name, count in counts.items():
                postings.setdefault(name, []).extend((len(entries), count))
            lengths.append(sum(counts.values()))
            entries.append([f"{page}.html#{section.anchor}", section.title, page_title, section.shown])
    index = {"entries": entries, "lengths": lengths, "postings": postings}
    script = f"window.bookIndex = {json.dumps(index, ensure_ascii=False, separators=(',', ':'))};\n"
    (Path(app.outdir) / "_static" / "book-index.js").write_text(script, encoding="utf-8")
