"""Sequences and grids of real values with a label each: NumPy archives, and tables with one sequence on a row.

N sequences or grids, T time steps, H height, W width, C values at each moment or cell.
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from statewise.data.lines import UTF8, Where, suffix
from statewise.data.numpy_file import read_numpy
from statewise.data.series_table import LARGEST
from statewise.data.table import Column, Header, Row, TableFormat, read_table
from statewise.specs import UserError, nearest


class Arrays(NamedTuple):
    """`labels` are written as text, as everywhere; a whole number has no point.

    Values keep their type: in 32 bits, what changes by one beside a billion would not change at all.
    """

    values_NTC: NDArray[Any]
    labels: list[str]
    where: list[Where]


class Grids(NamedTuple):
    values_NHWC: NDArray[Any]
    labels: list[str]
    where: list[Where]


def read_arrays(
    path: str | Path,
    *,
    values: str = "x",
    label: Column = "y",
    format: TableFormat = "auto",
    header: Header = "auto",
    delimiter: str | None = None,
    encoding: str = UTF8,
    labelled: bool = True,
) -> Arrays:
    """From an `.npz`, its arrays `values` ([N, T] or [N, T, C]) and `label` ([N]).

    From a table, the column `label` and all the others, which are one sequence from left to right.
    Where they are not to be `labelled`, an array or a named column of labels may be missing, and labels are empty.
    """
    path = Path(path)
    if suffix(path) == ".npz":
        return Arrays(*_archive(path, values, str(label) if labelled else None, grids=False))
    named = isinstance(label, str) and not label.isdecimal()
    rows = read_table(
        path,
        format=format,
        header="yes" if named and header == "auto" else header,
        columns={"data.label": label} if labelled or not named else {},
        delimiter=delimiter,
        encoding=encoding,
    )
    if not rows:
        raise UserError(f"{str(path)!r} holds no row", fix="each row is a label and the values of a sequence")
    place = _label_place(rows[0], label) if labelled or not named or label in rows[0].names else None
    values_NT = np.array([[_number(row, i) for i in range(len(row.cells)) if i != place] for row in rows])
    if values_NT.shape[1] == 0:
        raise UserError(f"{rows[0].where}: there are no values beside the label", fix="check the separator")
    labels = [row.text(label).strip() if labelled else "" for row in rows]
    return Arrays(values_NT[..., None], labels, [row.where for row in rows])


def read_grids(path: str | Path, *, values: str = "x", label: str = "y", labelled: bool = True) -> Grids:
    """From an `.npz`, its arrays `values` ([N, H, W] or [N, H, W, C]) and `label` ([N])."""
    path = Path(path)
    if suffix(path) != ".npz":
        raise UserError(
            f"{str(path)!r}: grids are read from NumPy archives, whose names end in .npz",
            fix="write one: numpy.savez('grids.npz', x=..., y=...) with x of shape [N, H, W] or [N, H, W, C]",
        )
    return Grids(*_archive(path, values, label if labelled else None, grids=True))


def _label_place(row: Row, label: Column) -> int:
    return row.names.index(str(label)) if label in row.names else int(label)


def _number(row: Row, place: int) -> float:
    cell = row.cells[place]
    try:
        value = float(cell)
    except (TypeError, ValueError):
        value = float("nan")
    if not abs(value) <= LARGEST:
        name = row.names[place] if row.names else place
        raise UserError(
            f"{row.where}: column {name!r} holds {cell!r}, expected a finite number",
            fix="correct or remove the row; sequences of values have no holes",
        )
    return value


def _archive(path: Path, values: str, label: str | None, *, grids: bool) -> tuple[NDArray[Any], list[str], list[Where]]:
    archive = read_numpy(path)
    if isinstance(archive, np.ndarray):
        raise UserError(f"{str(path)!r} is a single array, not an .npz archive")
    for name in (values, label):
        if name is not None and name not in archive:
            raise UserError(f"{str(path)!r} holds no array {name!r}", fix=nearest(name, archive))
    x = archive[values]
    y = np.zeros(x.shape[:1], dtype=np.int64) if label is None else archive[label]
    axes = 2 if grids else 1  # of a row, without its channels
    if x.ndim not in (1 + axes, 2 + axes) or x.dtype.kind not in "fiub" or not x.size:
        raise UserError(
            f"{str(path)!r}: array {values!r} has shape {list(x.shape)} of {x.dtype}",
            fix=f"expected numbers of shape {'[N, H, W] or [N, H, W, C]' if grids else '[N, T] or [N, T, C]'}",
        )
    if y.shape != x.shape[:1] or y.dtype.kind not in "iubU":
        raise UserError(
            f"{str(path)!r}: array {label!r} has shape {list(y.shape)} of {y.dtype}, "
            f"but {values!r} has {len(x)} {'grids' if grids else 'sequences'}",
            fix=f"expected whole numbers or names of shape [{len(x)}]",
        )
    bad_N = ~(np.abs(x.reshape(len(x), -1).astype(np.float64)) <= LARGEST).all(axis=1)
    if bad_N.any():
        raise UserError(
            f"{Where(str(path), int(bad_N.argmax()), 'row')}: a value of {values!r} is not finite, or too large",
            fix="correct or remove the row; sequences of values have no holes",
        )
    where = [Where(str(path), row, "row") for row in range(len(x))]
    labels = ["" if label is None else str(y[row]) for row in range(len(x))]
    return x.reshape(*x.shape[: 1 + axes], -1), labels, where
