"""What a lens found: sentences, figures, tables, and the numbers behind them. It renders itself in a notebook."""

import json
import math
from html import escape
from typing import Any, NamedTuple

from statewise.figures import Drawing, Table, html, markdown, svg_file


class Named(NamedTuple):
    """A table with its name, its title and a sentence on how to read it."""

    name: str
    title: str
    reading: str
    table: Table


class Finding(NamedTuple):
    """`sentences` say what was found, computed from `data`; the first is the one for a terminal.

    Names of figures and tables begin with the lens's, so that several findings can share a page.
    """

    lens: str
    title: str
    subject: str  # what was looked at
    sentences: tuple[str, ...]
    figures: tuple[Drawing, ...] = ()
    tables: tuple[Named, ...] = ()
    data: dict[str, Any] = {}  # noqa: RUF012 (nobody writes to it)
    missing: tuple[str, ...] = ()  # what could not be shown, and why

    def as_dict(self) -> dict[str, Any]:
        """For JSON: what is not finite becomes null."""
        record: dict[str, Any] = {
            **self._asdict(),
            "figures": [one.as_dict() for one in self.figures],
            "tables": [{**one._asdict(), "table": one.table.as_dict()} for one in self.tables],
        }
        found: dict[str, Any] = _plain(record)
        return found

    def to_json(self) -> str:
        return json.dumps(self.as_dict(), indent=1, allow_nan=False)

    def to_html(self) -> str:
        """The body of a section, without the page around it."""
        parts = [f'<div class="verdict" role="note">{"".join(f"<p>{escape(one)}</p>" for one in self.sentences)}</div>']
        parts.append(html.missing(self.missing, "Not shown"))
        if self.figures:
            parts.append(html.figures(self.figures))
        for one in self.tables:
            parts.append(
                f'<h3 class="table">{escape(one.title)}</h3><p class="note">{escape(one.reading)}</p>'
                f"{html.folded(one.table, sortable=True)}{html.table_export(one.name, one.table)}"
            )
        return "".join(parts)

    def to_markdown(self) -> str:
        parts = [f"## {markdown.escaped(self.title)}", *map(markdown.escaped, self.sentences)]
        parts += markdown.missing(self.missing)
        for figure in self.figures:
            parts += markdown.figure(figure)
        for one in self.tables:
            parts += [f"### {markdown.escaped(one.title)}", markdown.escaped(one.reading), markdown.table(one.table)]
        return "\n\n".join(part for part in parts if part)

    def _repr_html_(self) -> str:
        said = "".join(f"<p>{escape(one)}</p>" for one in (*self.sentences, *self.missing))
        drawn = "".join(
            f"<h4>{escape(one.title)}</h4><p>{escape(one.finding)}</p>{svg_file(one)}<p><small>{escape(one.reading)}"
            "</small></p>"
            for one in self.figures
            if one.drawable
        )
        tables = "".join(
            f"<h4>{escape(one.title)}</h4><p><small>{escape(one.reading)}</small></p>{html.folded(one.table)}"
            for one in self.tables
        )
        return f"<h3>{escape(self.title)}: {escape(self.subject)}</h3>{said}{drawn}{tables}"

    def __repr__(self) -> str:
        return f"Finding({self.lens}, {self.subject!r}: {' '.join(self.sentences)})"


def _plain(value: Any) -> Any:
    match value:
        case dict():
            return {str(key): _plain(one) for key, one in value.items()}
        case list() | tuple():
            return [_plain(one) for one in value]
        case float() if not math.isfinite(value):
            return None
        case _:
            return value
