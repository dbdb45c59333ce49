"""Rows of a Hugging Face dataset (`hub:NAME:SPLIT`), a Parquet or Arrow file (the extra `hub`), or a table of text."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

from statewise.data.columnar import is_columnar, read_columnar
from statewise.data.dataset import NEEDED_BY, open_dataset
from statewise.data.dataset import HubName as HubName
from statewise.data.dataset import hub_name as hub_name
from statewise.data.lines import Examples, Where
from statewise.data.table import Column, Columns, Row, TableOptions, no_column, table_rows
from statewise.specs import UserError, nearest, optional

_SHOWN = 256  # rows to guess by which column is meant


def read_hub(
    name_or_path: str | Path,
    columns: Columns | None,
    *,
    split: str = "train",
    config: str | None = None,
    data_files: Mapping[str, str] | Sequence[str] | str | None = None,
) -> Examples[Row]:
    """Rows of a dataset: one saved by `save_to_disk`, a folder, `csv`/`json`/`text` with `data_files`, or a name.

    A column of class ids is given as the names of the classes. `translation.de` is a column inside a column.
    Where one is named by its number from 0, or none is named (None), rows hold all columns in the dataset's order.
    As a mapping, `columns` also says which setting names each column.
    """
    return Examples(hub_rows(name_or_path, columns, split=split, config=config, data_files=data_files))


def hub_rows(
    name_or_path: str | Path,
    columns: Columns | None,
    *,
    split: str = "train",
    config: str | None = None,
    data_files: Mapping[str, str] | Sequence[str] | str | None = None,
) -> Iterator[Row]:
    """The same, one at a time: of a Parquet or Arrow file a batch is in memory, of a dataset what the library holds."""
    if is_columnar(name_or_path):
        datasets = optional("datasets", extra="hub", needed_by=NEEDED_BY)
        first = 0
        for table in read_columnar(Path(name_or_path)):
            yield from dataset_rows(datasets.Dataset(table), columns, name=str(name_or_path), first=first)
            first += table.num_rows
        return
    dataset = open_dataset(name_or_path, split=split, config=config, data_files=data_files)
    yield from dataset_rows(dataset, columns, name=str(name_or_path), part=f" {split}")


def dataset_rows(dataset: Any, columns: Columns | None, *, name: str, part: str = "", first: int = 0) -> Iterator[Row]:
    """Rows of an opened `datasets.Dataset`, as `read_hub` gives them. `name` and `part` are for messages.

    `first` is the number of its first row.
    """
    settings = columns if isinstance(columns, Mapping) else {}
    whole, columns = columns is None, list(settings.values()) or columns or ()
    numbered = [int(column) for column in columns if _is_number(column)]
    for number in numbered:
        if not 0 <= number < len(dataset.column_names):
            raise UserError(
                f"the dataset {name!r} has no column {number}",
                fix=f"columns are numbered from 0: {', '.join(dataset.column_names)}",
            )
    named = [str(column) for column in columns if not _is_number(column)]
    names = tuple(dict.fromkeys([*(dataset.column_names if numbered or whole else ()), *named]))
    for column in names:
        if column.partition(".")[0] not in dataset.column_names:
            if settings:
                shown = dataset.with_format(None)[:_SHOWN]
                cells = {known: [str(cell) for cell in shown[known] if isinstance(cell, str | int)] for known in shown}
                raise no_column(
                    name, {path: str(setting) for path, setting in settings.items() if str(setting) in named}, cells
                )
            raise UserError(f"the dataset {name!r} has no column {column!r}", fix=nearest(column, dataset.column_names))
    outer = list(dict.fromkeys(column.partition(".")[0] for column in names))
    features = {column: dataset.features[column] for column in outer}
    for number, row in enumerate(dataset.with_format(None).select_columns(outer), start=first):
        where = Where(f"{name}{part}", number, "row")
        yield Row(tuple(_cell(row, column, features, where) for column in names), names, where)


def _is_number(column: Column) -> bool:
    return isinstance(column, int) or column.isdecimal()


def _cell(row: Mapping[str, Any], column: str, features: Mapping[str, Any], where: Where) -> Any:
    outer, _, inner = column.partition(".")
    cell = row[outer]
    if inner:
        if not isinstance(cell, Mapping) or inner not in cell:
            raise UserError(f"{where}: column {outer!r} holds no {inner!r}")
        return cell[inner]
    feature = features[outer]
    names = getattr(getattr(feature, "feature", feature), "names", None)  # of a list of classes: those of each
    if names is None:
        return cell
    if isinstance(cell, list):
        return [_named(item, names, outer, where) for item in cell]
    return _named(cell, names, outer, where)


def _named(cell: Any, names: Sequence[str], column: str, where: Where) -> Any:
    if not isinstance(cell, int):
        return cell
    if not 0 <= cell < len(names):
        raise UserError(f"{where}: column {column!r} is {cell}, which stands for none of its classes")
    return names[cell]


def read_rows(
    path: Path, counts: Counter[str], *, columns: Mapping[str, Column], **options: Unpack[TableOptions]
) -> Iterator[Row]:
    """Rows of a dataset or a file, one at a time; the options are those of `table_rows` and apply to files only."""
    hub = hub_name(path)
    if hub is not None:
        return hub_rows(hub.name, columns, config=hub.config, split=hub.split)
    return table_rows(path, counts, columns=columns, **options)
