"""From what was found to the three files of a report."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from statewise.comparison.budget import Entry
from statewise.comparison.record import write_text
from statewise.comparison.report.content import as_dict, gather
from statewise.comparison.report.html import page
from statewise.comparison.report.markdown import markdown
from statewise.comparison.trial import Failure, Found
from statewise.specs.study import StudySpec


def write_report(
    study: StudySpec,
    entries: Sequence[Entry],
    found: Sequence[Found],
    *,
    folder: str | Path,
    static: bool = False,
    failures: Sequence[Failure] = (),
    command: str | None = None,
) -> Path:
    """Write `report.html`, `report.md` and `report.json` into the study's folder; the path of the first.

    Not everything needs to be there: the report says what is missing. `static`: drawings only, without plotly.
    `command` is what reproduces it.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    content = gather(study, entries, found, failures=failures, folder=folder, command=command)
    write_text(folder / "report.json", json.dumps(_numbers(as_dict(content)), indent=1, allow_nan=False) + "\n")
    write_text(folder / "report.md", markdown(content))
    write_text(folder / "report.html", page(content, static=static))
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
