"""From what was found to the three files of a report."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from statewise.comparison.budget import Entry
from statewise.comparison.record import write_text
from statewise.comparison.report.content import as_dict, gather
from statewise.comparison.report.html import page
from statewise.comparison.report.markdown import markdown
from statewise.comparison.trial import Failure, Found
from statewise.figures.figure import Figure
from statewise.specs.study import StudySpec


class Part(NamedTuple):
    """A study of the report, and what was found."""

    name: str
    study: StudySpec
    entries: Sequence[Entry]
    found: Sequence[Found]
    failures: Sequence[Failure]
    folder: Path


def write_report(
    parts: Sequence[Part],
    *,
    title: str,
    question: str,
    folder: str | Path,
    static: bool = False,
    command: str | None = None,
    look: Figure | None = None,
) -> Path:
    """Write `report.html`, `report.md` and `report.json` into the folder; the path of the first.

    Not everything needs to be there: the report says what is missing. `static`: drawings only, without plotly.
    `command` is what reproduces it.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    contents = [
        gather(part.study, part.entries, part.found, failures=part.failures, folder=part.folder, command=command)
        for part in parts
    ]
    told = [{"name": part.name, **as_dict(content)} for part, content in zip(parts, contents)]
    report = {
        "title": title,
        "question": question,
        "verdict": [sentence for content in contents for sentence in content.verdict],
        "missing": [said for content in contents for said in content.missing],
        "look": None if look is None else look.as_dict(),
        "command": command or contents[0].command,
        "parts": told,
    }
    write_text(folder / "report.json", json.dumps(_numbers(report), indent=1, allow_nan=False) + "\n")
    write_text(folder / "report.md", "\n".join(map(markdown, contents)))
    write_text(folder / "report.html", page(contents[-1], static=static))
    return folder / "report.html"


def _numbers(value: Any) -> Any:
    """JSON has no infinity: what is not finite becomes null."""
    match value:
        case dict():
            return {str(key): _numbers(one) for key, one in value.items()}
        case list() | tuple():
            return [_numbers(one) for one in value]
        case float() if not math.isfinite(value):
            return None
        case _:
            return value
