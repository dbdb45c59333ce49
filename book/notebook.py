"""A chapter as a Jupyter notebook: its prose as Markdown cells, its blocks as code cells with what they printed."""

import re
from typing import Any

from chapter import FORMULA, LABEL, Page
from run import Result

BOXES = {
    "en": {"claim": "Claim", "erratum": "Erratum", "exercise": "Exercise", "note": "Note", "live": "In the site"},
    "zh": {"claim": "论断", "erratum": "勘误", "exercise": "练习", "note": "注", "live": "在网站里"},
}
VERDICTS = {
    "en": {"true": "holds", "partly": "holds in part", "false": "does not hold", "open": "not decided"},
    "zh": {"true": "成立", "partly": "部分成立", "false": "不成立", "open": "未能判定"},
}
BRACKETS = {"en": " ({})", "zh": "（{}）"}
OPENING = re.compile(r"^:{3,}\{([\w-]+)\} ?(.*)\n((?::[\w-]+: ?.*\n)*)", re.MULTILINE)
# A link that leads nowhere from a notebook: its text stays.
PLACE = re.compile(r"(?<!!)\[([^\]]*)\]\((?:\.\./\.\./docs/[^)]*|#[^)]*|[\w-]+\.md[^)]*)\)")
CLOSING = re.compile(r"^:{3,}$\n?", re.MULTILINE)


def notebook(page: Page, done: list[Result]) -> dict[str, Any]:
    cells, at = [], 0
    for number, (block, result) in enumerate(zip(page.blocks, done, strict=True)):
        cells += _markdown(page, page.text[at : block.span[0]], number)
        outputs = [{"output_type": "stream", "name": "stdout", "text": result.printed}] if result.printed else []
        cells.append(
            {
                "cell_type": "code",
                "id": f"code-{number}",
                "metadata": {"jupyter": {"source_hidden": True}} if block.folded else {},
                "execution_count": number + 1,
                "source": block.code.rstrip("\n"),
                "outputs": outputs,
            }
        )
        at = block.span[1]
    cells += _markdown(page, page.text[at:], len(done))
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": {"kernelspec": kernel}, "cells": cells}


def _markdown(page: Page, text: str, number: int) -> list[dict[str, Any]]:
    text = LABEL.sub("", text)
    text = FORMULA.sub(lambda found: f"$$\n{found[1]}$$", text)
    text = OPENING.sub(lambda found: _box(page.language, found), text)
    text = CLOSING.sub("", text)
    text = PLACE.sub(r"\1", text)
    text = re.sub(r"\n{3,}", "\n\n", text).strip()
    return [{"cell_type": "markdown", "id": f"text-{number}", "metadata": {}, "source": text}] if text else []


def _box(language: str, found: re.Match[str]) -> str:
    """A box as its title, with its verdict; a slider as all of its pictures, which the cells above have drawn."""
    name, argument = found[1], found[2]
    options = dict(re.findall(r"^:([\w-]+): ?(.*)$", found[3], re.MULTILINE))
    if name == "slider":
        return "".join(f"![{options['alt']}]({argument}-{value}.svg)\n" for value in options["values"].split()) + "\n"
    if name == "live":
        argument = ""  # a view of the lab, in the site alone
    if name not in BOXES[language]:
        return ""
    verdict = BRACKETS[language].format(VERDICTS[language][options["verdict"]]) if "verdict" in options else ""
    return f"**{BOXES[language][name]} {argument}".rstrip() + f"**{verdict}\n\n"
