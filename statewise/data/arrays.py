"""Sequences of real values with a label each: NumPy archives, and tables with one sequence on a row.

N sequences, T time steps, C values at each.
"""

import io
import zipfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from statewise.data.lines import Where, read_bytes, suffix
from statewise.data.table import Column, Header, Row, TableFormat, read_table
from statewise.specs import UserError, nearest


class Arrays(NamedTuple):
    """`labels` are written as text, as everywhere; a whole number has no point."""

    values_NTC: NDArray[np.float32]
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
) -> Arrays:
    """From an `.npz`, its arrays `values` ([N, T] or [N, T, C]) and `label` ([N]).

    From a table, the column `label` and all the others, which are one sequence from left to right.
    """
    path = Path(path)
    if suffix(path) == ".npz":
        return _archive(path, values, str(label))
    rows = read_table(path, format=format, header=header, columns=(label,), delimiter=delimiter)
    if not rows:
        raise UserError(f"{str(path)!r} holds no row", fix="each row is a label and the values of a sequence")
    place = _label_place(rows[0], label)
    values_NT = np.array([[_number(row, i) for i in range(len(row.cells)) if i != place] for row in rows])
    if values_NT.shape[1] == 0:
        raise UserError(f"{rows[0].where}: there are no values beside the label", fix="check the separator")
    labels = [row.text(label).strip() for row in rows]
    return Arrays(values_NT[..., None].astype(np.float32), labels, [row.where for row in rows])


def _label_place(row: Row, label: Column) -> int:
    return row.names.index(str(label)) if label in row.names else int(label)


def _number(row: Row, place: int) -> float:
    cell = row.cells[place]
    try:
        value = float(cell)
    except (TypeError, ValueError):
        value = float("nan")
    if not np.isfinite(value):
        name = row.names[place] if row.names else place
        raise UserError(f"{row.where}: column {name!r} holds {cell!r}, expected a finite number")
    return value


def _archive(path: Path, values: str, label: str) -> Arrays:
    try:
        # Not memory-mapped: an archive cannot be. Pickled objects are refused, so nothing is executed.
        with np.load(io.BytesIO(read_bytes(path)), allow_pickle=False) as archive:
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise UserError(f"{str(path)!r} is a single array, not an .npz archive")
            for name in (values, label):
                if name not in archive.files:
                    raise UserError(f"{str(path)!r} holds no array {name!r}", fix=nearest(name, archive.files))
            x, y = archive[values], archive[label]
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{str(path)!r} is not an .npz archive of plain arrays: {error}") from None
    if x.ndim not in (2, 3) or x.dtype.kind not in "fiub" or not x.size:
        raise UserError(
            f"{str(path)!r}: array {values!r} has shape {list(x.shape)} of {x.dtype}",
            fix="expected numbers of shape [N, T] or [N, T, C]",
        )
    if y.shape != x.shape[:1] or y.dtype.kind not in "iubU":
        raise UserError(
            f"{str(path)!r}: array {label!r} has shape {list(y.shape)} of {y.dtype}, "
            f"but {values!r} has {len(x)} sequences",
            fix=f"expected whole numbers or names of shape [{len(x)}]",
        )
    bad_N = ~np.isfinite(x.reshape(len(x), -1)).all(axis=1)
    if bad_N.any():
        raise UserError(f"{Where(str(path), int(bad_N.argmax()), 'row')}: a value of {values!r} is not finite")
    where = [Where(str(path), row, "row") for row in range(len(x))]
    return Arrays(x.reshape(*x.shape[:2], -1).astype(np.float32), [str(one) for one in y.tolist()], where)
