"""Parquet, Arrow and Feather files, some rows at a time; and the texts of one column of these or of a dataset."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from statewise.data.dataset import HubName, batches, open_dataset
from statewise.data.dataset import is_columnar as is_columnar
from statewise.data.json_lines import plain_text
from statewise.data.lines import Where
from statewise.data.table import Column, no_column
from statewise.specs import UserError, optional, setting

_SETTING = "data.text_column"
_ROWS, _ALL_ROWS = 256, 1 << 12  # of a batch; texts may be long
_BUFFER = 1 << 20  # bytes: a Parquet column is read page by page


def read_columnar(path: Path) -> Iterator[Any]:
    """A file as tables of some rows each, one at least; a folder of Parquet files as one."""
    if path.is_dir():
        with _refusing(path):
            yield _pyarrow(".parquet").read_table(path)
        return
    table = _pyarrow().Table
    with _opened(path) as file:
        rows = 0
        for batch in file.batches(None):
            rows += batch.num_rows
            yield table.from_batches([batch])
        if not rows:
            yield table.from_batches([], schema=file.schema)


def text_bytes(path: Path | HubName, column: Column) -> int:
    """UTF-8 bytes of all texts of a column."""
    compute = _pyarrow(".compute")
    with _opened(path) as file:
        return sum(compute.sum(compute.binary_length(cells)).as_py() or 0 for cells in _cells(file, column))


def read_texts(path: Path | HubName, column: Column) -> Iterator[str]:
    """The texts of a column, with `\\n` line ends and without byte-order marks."""
    with _opened(path) as file:
        for row, cell in enumerate(chain.from_iterable(_cells(file, column))):
            yield _text(cell, Where(file.name, row, "row"))


def _text(cell: Any, where: Where) -> str:
    try:
        return plain_text(cell.as_py(), where)
    except UnicodeDecodeError as error:
        raise UserError(f"{where}: byte {error.start} of the text is not UTF-8", fix="correct it") from None


class _File(NamedTuple):
    """An open file. `batches` are its rows in order, with one column at least (by name) or all (None)."""

    name: str
    schema: Any
    batches: Callable[[str | None], Iterator[Any]]


def _pyarrow(module: str = "") -> Any:
    return optional(f"pyarrow{module}", extra="hub", needed_by="Parquet and Arrow files")


@contextmanager
def _opened(path: Path | HubName) -> Iterator[_File]:
    if isinstance(path, HubName):
        dataset = open_dataset(path.name, split=path.split, config=path.config)
        yield _File(str(path), dataset.features.arrow_schema, partial(batches, dataset, size=_ROWS))
        return
    with _refusing(path):
        if path.suffix.lower() == ".parquet":
            with _pyarrow(".parquet").ParquetFile(path, pre_buffer=False, buffer_size=_BUFFER) as parquet:
                yield _File(str(path), parquet.schema_arrow, partial(_parquet, parquet))
        else:
            with _pyarrow().memory_map(str(path)) as mapped:
                yield _File(str(path), _arrow(mapped)[0], lambda _: _arrow(mapped)[1])


@contextmanager
def _refusing(path: Path) -> Iterator[None]:
    """What pyarrow cannot read is refused."""
    pyarrow = _pyarrow()
    try:
        yield
    except (pyarrow.ArrowException, OSError) as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise UserError(
            f"{str(path)!r} cannot be loaded: {reason[0]}", fix="name a whole .parquet, .arrow or .feather file"
        ) from None


def _parquet(parquet: Any, column: str | None) -> Iterator[Any]:
    if column is None:
        return iter(parquet.iter_batches(batch_size=_ALL_ROWS))
    return iter(parquet.iter_batches(batch_size=_ROWS, columns=[column]))


def _arrow(mapped: Any) -> tuple[Any, Iterator[Any]]:
    """The schema and the batches of an Arrow file or stream. A batch is not copied, unless it is compressed."""
    ipc = _pyarrow(".ipc")
    mapped.seek(0)
    try:
        file = ipc.open_file(mapped)
    except _pyarrow().ArrowInvalid:
        mapped.seek(0)
        stream = ipc.open_stream(mapped)
        return stream.schema, iter(stream)
    return file.schema, map(file.get_batch, range(file.num_record_batches))


def _cells(file: _File, column: Column) -> Iterator[Any]:
    """The cells of a column of text, as arrays of a few rows. `translation.de` is a column inside a column."""
    pyarrow, compute = _pyarrow(), _pyarrow(".compute")
    names = list(file.schema.names)
    name, *inner = [str(column)] if column in names else str(column).split(".")
    if name.isdecimal() and name not in names and int(name) < len(names):
        name = names[int(name)]
    if name not in names:
        raise no_column(file.name, {_SETTING: str(column)}, _first_cells(file))
    kind = file.schema.field(name).type
    for one in inner:
        if not pyarrow.types.is_struct(kind) or kind.get_field_index(one) < 0:
            raise UserError(f"{file.name!r}: column {name!r} holds no {one!r}, it holds {kind}")
        kind = kind.field(one).type
    if not _is_text(kind):
        raise UserError(
            f"{file.name!r}: column {column!r} holds {kind}, expected text",
            fix=f"name the column of the text ({', '.join(names)}): {setting(_SETTING, 'COLUMN')}",
        )
    for batch in file.batches(name):
        for start in range(0, batch.num_rows, _ROWS):
            cells = batch.column(name).slice(start, _ROWS)
            yield (compute.struct_field(cells, inner) if inner else cells).cast(pyarrow.large_string())


def _is_text(kind: Any) -> bool:
    types = _pyarrow().types
    kind = kind.value_type if types.is_dictionary(kind) else kind
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _first_cells(file: _File) -> dict[str, list[str]]:
    """Of each column of text, some cells; of others none."""
    batch = next((batch for batch in file.batches(None) if batch.num_rows), None)
    rows = {} if batch is None else batch.slice(0, _ROWS).to_pydict()
    return {
        field.name: [str(cell) for cell in rows.get(field.name, ()) if cell] if _is_text(field.type) else []
        for field in file.schema
    }
