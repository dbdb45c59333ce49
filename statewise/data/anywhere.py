"""Rows of a table, wherever it is: in a file, or in a Hugging Face dataset named `hub:NAME:SPLIT`."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from statewise.data.hub import read_hub
from statewise.data.lines import UTF8, Examples
from statewise.data.table import Column, Header, Row, TableFormat, read_table
from statewise.specs import UserError

_HUB = "hub:"


class HubName(NamedTuple):
    """`hub:NAME`, `hub:NAME:SPLIT` or `hub:NAME:CONFIG:SPLIT`; a name may be a folder."""

    name: str
    config: str | None
    split: str


def hub_name(path: str | Path) -> HubName | None:
    """What a path says if it is no path but the name of a dataset."""
    text = str(path)
    if not text.startswith(_HUB):
        return None
    match text.removeprefix(_HUB).split(":"):
        case [str(name)] if name:
            return HubName(name, None, "train")
        case [str(name), str(split)] if name and split:
            return HubName(name, None, split)
        case [str(name), str(config), str(split)] if name and config and split:
            return HubName(name, config, split)
    raise UserError(f"{text!r} names no dataset", fix="write hub:NAME, hub:NAME:SPLIT or hub:NAME:CONFIG:SPLIT")


def read_rows(
    path: Path,
    *,
    columns: Mapping[str, Column],
    format: TableFormat = "auto",
    header: Header = "auto",
    delimiter: str | None = None,
    encoding: str = UTF8,
    keep_empty: bool = False,
) -> Examples[Row]:
    """As `read_table`, whose options a dataset has no use for."""
    hub = hub_name(path)
    if hub is not None:
        return read_hub(hub.name, list(columns.values()), config=hub.config, split=hub.split)
    return read_table(
        path,
        format=format,
        header=header,
        columns=columns,
        delimiter=delimiter,
        encoding=encoding,
        keep_empty=keep_empty,
    )
