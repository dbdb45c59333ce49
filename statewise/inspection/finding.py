"""The result of a lens: sentences, figures, tables and numbers; as a page, as files, and in a notebook."""

import json
from collections.abc import Sequence
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from statewise.disk import for_json, make_folder
from statewise.disk import write as put
from statewise.display import alone
from statewise.figures import Drawing, Table, html, markdown, missing_glyphs, paint, svg_file
from statewise.specs import UserError


class Named(NamedTuple):
    """A table with its name, its title and a sentence on how to read it."""

    name: str
    title: str
    reading: str
    table: Table


class Finding(NamedTuple):
    """`sentences` are computed from `data`; the first is the one for a terminal.

    Names of figures and tables begin with that of the lens, so that several findings can share a page.
    """

    lens: str
    title: str
    subject: str  # what was inspected
    sentences: tuple[str, ...]
    figures: tuple[Drawing, ...] = ()
    tables: tuple[Named, ...] = ()
    data: dict[str, Any] = {}  # noqa: RUF012 (never written to)
    missing: tuple[str, ...] = ()  # what is not shown, and why

    def as_dict(self) -> dict[str, Any]:
        """For JSON: non-finite numbers become null."""
        record: dict[str, Any] = {
            **self._asdict(),
            "figures": [figure.as_dict() for figure in self.figures],
            "tables": [{**table._asdict(), "table": table.table.as_dict()} for table in self.tables],
        }
        plain: dict[str, Any] = for_json(record)
        return plain

    def to_json(self) -> str:
        return json.dumps(self.as_dict(), indent=1, allow_nan=False)

    def to_html(self) -> str:
        """The body of a section, without the page around it."""
        said = "".join(f"<p>{escape(sentence)}</p>" for sentence in self.sentences)
        parts = [f'<div class="verdict" role="note">{said}</div>', html.missing(self.missing, "Not shown")]
        if self.figures:
            parts.append(html.figures(self.figures))
        for table in self.tables:
            parts.append(
                f'<h3 class="table">{escape(table.title)}</h3><p class="note">{escape(table.reading)}</p>'
                f"{html.folded(table.table, sortable=True)}{html.table_export(table.name, table.table)}"
            )
        return "".join(parts)

    def to_markdown(self) -> str:
        parts = [f"## {markdown.escaped(self.title)}", *map(markdown.escaped, self.sentences)]
        parts += markdown.missing(self.missing)
        for figure in self.figures:
            parts += markdown.figure(figure)
        for table in self.tables:
            parts += [
                f"### {markdown.escaped(table.title)}",
                markdown.escaped(table.reading),
                markdown.table(table.table),
            ]
        return "\n\n".join(part for part in parts if part)

    def _repr_html_(self) -> str:
        said = "".join(f"<p>{escape(sentence)}</p>" for sentence in (*self.sentences, *self.missing))
        drawn = "".join(
            f"<h4>{escape(figure.title)}</h4><p>{escape(figure.finding)}</p>{svg_file(figure)}<p><small>{escape(figure.reading)}"
            "</small></p>"
            for figure in self.figures
            if figure.drawable
        )
        tables = "".join(
            f"<h4>{escape(table.title)}</h4><p><small>{escape(table.reading)}</small></p>{html.folded(table.table)}"
            for table in self.tables
        )
        return f"<h3>{escape(self.title)}: {escape(self.subject)}</h3>{said}{drawn}{tables}"

    def __repr__(self) -> str:
        return f"Finding({self.lens}, {self.subject!r}: {' '.join(self.sentences)})"


_FEW = 8  # letters that are listed


def page(subject: str, findings: Sequence[Finding], *, static: bool = False, command: str | None = None) -> str:
    title = f"{findings[0].title}: {subject}" if len(findings) == 1 else f"Inspection of {subject}"
    links = "".join(f'<a href="#lens-{finding.lens}">{escape(finding.title)}</a>' for finding in findings)
    nav = f"<nav>{links}</nav>" if len(findings) > 1 else ""
    parts = [f"<header><h1>{escape(title)}</h1>{nav}</header>"]
    for finding in findings:
        head = f"<h2>{escape(finding.title)}</h2>" if len(findings) > 1 else ""
        parts.append(f'<section id="lens-{finding.lens}">{head}{finding.to_html()}</section>')
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
    record = {"subject": subject, "command": command, "findings": [finding.as_dict() for finding in findings]}
    put(folder / "inspect.json", json.dumps(record, indent=1, allow_nan=False) + "\n")
    put(folder / "inspect.md", "\n\n".join([f"# {subject}", *(finding.to_markdown() for finding in findings)]) + "\n")
    for finding in findings:
        for figure in (figure for figure in finding.figures if figure.drawable):
            put(files / f"{figure.name}.csv", figure.csv())
            put(files / f"{figure.name}.svg", svg_file(figure))
            if find_spec("matplotlib") is not None:
                paint(figure, files / f"{figure.name}.png")
        for table in finding.tables:
            put(files / f"{table.name}.csv", table.table.csv())
    path = folder / "inspect.html"
    put(path, page(subject, findings, static=static, command=command))
    return path


def written_files(findings: Sequence[Finding], folder: Path) -> list[Path]:
    """The files of `write`; PNG files where matplotlib is installed."""
    paths = [folder / f"inspect.{kind}" for kind in ("html", "json", "md")]
    for finding in findings:
        for figure in (figure for figure in finding.figures if figure.drawable):
            paths += [folder / "figures" / f"{figure.name}.{kind}" for kind in ("csv", "svg", "png")]
        paths += [folder / "figures" / f"{table.name}.csv" for table in finding.tables]
    return paths


def letters_without_font(findings: Sequence[Finding] = ()) -> str | None:
    """Letters that PNG files cannot show for lack of a font, in words; None: there are none."""
    if find_spec("matplotlib") is None:
        return None
    boxes = sorted(
        set().union(*(missing_glyphs(figure) for finding in findings for figure in finding.figures if figure.drawable))
    )
    if not boxes:
        return None
    some = " ".join(map(alone, boxes[:_FEW])) + (f" and {len(boxes) - _FEW} more" if len(boxes) > _FEW else "")
    return f"no font that matplotlib finds here has {some}: in PNG files they are boxes, elsewhere they are as they are"
