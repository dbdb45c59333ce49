"""The index of a site: sections and their terms, as a script that a page opened from disk can load.

English words lose their endings; Chinese text is cut into pairs of neighbouring characters, so that a phrase is found
however a dictionary would cut it. `static/search.js` cuts a question in the same way and ranks sections by BM25.
"""

import json
import re
from collections import Counter
from collections.abc import Container
from pathlib import Path
from typing import Any

from docutils import nodes

TERM = re.compile(r"[a-z0-9_]+|[\u4e00-\u9fff]+")
ENDING = re.compile(r"(?:ations?|ings?|ed|es|s|ly|e)$")
TITLE, PAGE_TITLE = 6, 3  # how many times the words of a title count
SHOWN = 400  # characters of a section that results show


def terms(text: str) -> list[str]:
    found = []
    for term in TERM.findall(text.lower()):
        if term[0] >= "\u4e00":
            found += [term[at : at + 2] for at in range(len(term) - 1)] or [term]
        else:
            short = ENDING.sub("", term)
            found.append(short if len(short) > 2 else term)
    return found


def sections(doctree: nodes.document, labels: Container[str]) -> list[tuple[str, str, str]]:
    """Anchor (its label, if it has one), title and own text of every section, without those of its subsections."""
    found = []
    for section in doctree.findall(nodes.section):
        title = next(iter(section.findall(nodes.title))).astext()
        own = [
            child.astext()
            for child in section.children
            if not isinstance(child, nodes.section | nodes.title | nodes.raw)
        ]
        anchor = next((name for name in section["ids"] if name in labels), section["ids"][-1])
        found.append((anchor, title, " ".join(" ".join(own).split())))
    return found


def write_index(app: Any, exception: Exception | None) -> None:
    if exception is not None or app.builder.format != "html":
        return
    entries: list[list[str]] = []
    lengths: list[int] = []
    postings: dict[str, list[int]] = {}
    for page in sorted(app.env.found_docs):
        page_title = app.env.titles[page].astext()
        for anchor, title, text in sections(app.env.get_doctree(page), app.env.domaindata["std"]["anonlabels"]):
            counts = Counter(terms(text))
            for term in terms(title):
                counts[term] += TITLE
            for term in terms(page_title):
                counts[term] += PAGE_TITLE
            for term, count in counts.items():
                postings.setdefault(term, []).extend((len(entries), count))
            lengths.append(sum(counts.values()))
            entries.append([f"{page}.html#{anchor}", title, page_title, text[:SHOWN]])
    index = {"entries": entries, "lengths": lengths, "postings": postings}
    script = f"window.bookIndex = {json.dumps(index, ensure_ascii=False, separators=(',', ':'))};\n"
    (Path(app.outdir) / "_static" / "book-index.js").write_text(script, encoding="utf-8")
