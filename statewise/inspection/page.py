"""Findings as one page that needs nothing beside it, and as files: every figure and table on its own."""

import json
from collections.abc import Sequence
from html import escape
from importlib.util import find_spec
from pathlib import Path

from statewise.disk import make_folder
from statewise.disk import write as put
from statewise.display import alone
from statewise.figures import html, paint, svg_file, unwritten
from statewise.inspection.finding import Finding
from statewise.specs import UserError

_FEW = 8  # letters that are named


def page(subject: str, findings: Sequence[Finding], *, static: bool = False, command: str | None = None) -> str:
    title = f"{findings[0].title}: {subject}" if len(findings) == 1 else f"Inspection of {subject}"
    links = "".join(f'<a href="#lens-{one.lens}">{escape(one.title)}</a>' for one in findings)
    nav = f"<nav>{links}</nav>" if len(findings) > 1 else ""
    parts = [f"<header><h1>{escape(title)}</h1>{nav}</header>"]
    for one in findings:
        head = f"<h2>{escape(one.title)}</h2>" if len(findings) > 1 else ""
        parts.append(f'<section id="lens-{one.lens}">{head}{one.to_html()}</section>')
    if command:
        parts.append(
            "<section><h2>How it was made</h2><p>This command writes the page again:</p>"
            f'<pre class="command">{escape(command)}</pre></section>'
        )
    return html.page(title=title, body="\n".join(parts), static=static)


def write(
    subject: str, findings: Sequence[Finding], folder: Path, *, static: bool = False, command: str | None = None
) -> Path:
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{str(folder)!r} is a file", fix="name a folder to write into")
    files = folder / "figures"
    make_folder(files, inside=folder)
    record = {"subject": subject, "command": command, "findings": [one.as_dict() for one in findings]}
    put(folder / "inspect.json", json.dumps(record, indent=1, allow_nan=False) + "\n")
    put(folder / "inspect.md", "\n\n".join([f"# {subject}", *(one.to_markdown() for one in findings)]) + "\n")
    for one in findings:
        for figure in (figure for figure in one.figures if figure.drawable):
            put(files / f"{figure.name}.csv", figure.csv())
            put(files / f"{figure.name}.svg", svg_file(figure))
            if find_spec("matplotlib") is not None:
                paint(figure, files / f"{figure.name}.png")
        for table in one.tables:
            put(files / f"{table.name}.csv", table.table.csv())
    path = folder / "inspect.html"
    put(path, page(subject, findings, static=static, command=command))
    return path


def names(findings: Sequence[Finding], folder: Path) -> list[Path]:
    """What `write` writes; PNG files where they can be drawn."""
    found = [folder / f"inspect.{kind}" for kind in ("html", "json", "md")]
    for one in findings:
        for figure in (figure for figure in one.figures if figure.drawable):
            found += [folder / "figures" / f"{figure.name}.{kind}" for kind in ("csv", "svg", "png")]
        found += [folder / "figures" / f"{table.name}.csv" for table in one.tables]
    return found


def left_out(findings: Sequence[Finding] = ()) -> str | None:
    """What could not be written beside a page, in words. PNG files are an extra: without matplotlib there are none."""
    if find_spec("matplotlib") is None:
        return None
    boxes = sorted(set().union(*(unwritten(figure) for one in findings for figure in one.figures if figure.drawable)))
    if not boxes:
        return None
    some = " ".join(map(alone, boxes[:_FEW])) + (f" and {len(boxes) - _FEW} more" if len(boxes) > _FEW else "")
    return f"no font that matplotlib finds here has {some}: in PNG files they are boxes, elsewhere they are as they are"
