"""What a swap did: which modules it replaced, which it left, and why."""

import html
from io import StringIO
from typing import NamedTuple

from rich.console import Console
from rich.table import Table


class Seen(NamedTuple):
    """One recurrent module of a model; a shared one is seen once, under all its names."""

    names: tuple[str, ...]
    module: str
    replaced: bool
    reason: str  # what it became, or why it was left

    def cells(self) -> tuple[str, str, str, str]:
        names = ", ".join(name or "(the model itself)" for name in self.names)
        return names, self.module, "replaced" if self.replaced else "left", self.reason


_HEADINGS = ("name", "module", "", "by, or why")


class Report(NamedTuple):
    """Renders itself as a table: printed, by rich, and in a notebook."""

    seen: tuple[Seen, ...]
    dry_run: bool = False

    @property
    def replaced(self) -> tuple[Seen, ...]:
        return tuple(one for one in self.seen if one.replaced)

    @property
    def left(self) -> tuple[Seen, ...]:
        return tuple(one for one in self.seen if not one.replaced)

    def title(self) -> str:
        if not self.seen:
            return "no recurrent module found"
        would = "would be " if self.dry_run else ""
        return f"{len(self.replaced)} of {len(self.seen)} recurrent modules {would}replaced"

    def __rich__(self) -> Table:
        table = Table(title=self.title(), title_justify="left")
        for heading in _HEADINGS:
            table.add_column(heading, overflow="fold")
        for one in self.seen:
            table.add_row(*one.cells())
        return table

    def __str__(self) -> str:
        text = StringIO()
        Console(file=text, width=120, color_system=None).print(self.__rich__() if self.seen else self.title())
        return text.getvalue().rstrip()

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{heading}</th>" for heading in _HEADINGS)
        rows = "".join(
            f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in one.cells())}</tr>" for one in self.seen
        )
        return f"<table><caption>{self.title()}</caption><tr>{head}</tr>{rows}</table>"
