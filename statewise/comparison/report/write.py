"""From the results of one or several studies to the three files of a report."""

import json
from collections.abc import Sequence
from pathlib import Path

from statewise.comparison.report.content import Part as Part
from statewise.comparison.report.content import as_dict, gather
from statewise.comparison.report.html import page
from statewise.comparison.report.markdown import markdown
from statewise.disk import for_json, make_folder, write
from statewise.figures import Figure, Frame


def write_report(
    parts: Sequence[Part],
    *,
    title: str,
    question: str,
    folder: str | Path,
    static: bool = False,
    command: str | None = None,
    look: Figure | None = None,
    live: Frame | None = None,
) -> Path:
    """Write `report.html`, `report.md` and `report.json` into a folder; the path of the first.

    Not every trial has to be there: the report lists what is missing. `look` is a figure that shows why, from inside a
    model; `static`: a page without scripts; `command`: what reproduces it; `live`: models that read what is typed.

        write_report([Part("memory", study, entries, found, (), folder)], title="Memory", question="...", folder=folder)
    """
    folder = Path(folder)
    make_folder(folder)
    content = gather(parts, title=title, question=question, command=command, look=look)
    write(folder / "report.json", json.dumps(for_json(as_dict(content)), indent=1, allow_nan=False) + "\n")
    write(folder / "report.md", markdown(content))
    write(folder / "report.html", page(content, static=static, live=live))
    return folder / "report.html"
