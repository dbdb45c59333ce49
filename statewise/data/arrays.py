"""NumPy and MATLAB files: labelled sequences, labelled grids, and series. Nothing is unpickled, and sizes are bounded.

N sequences, grids or series, T time steps, H height, W width, C values at each time step or cell.
"""

import io
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from statewise.data.compressed import most_unpacked
from statewise.data.lines import UTF8, Where, read_bytes, suffix
from statewise.data.series_table import LARGEST
from statewise.data.table import Column, Header, Row, TableFormat, read_table
from statewise.specs import UserError, nearest, optional

_ZIP = b"PK"
_ITEM = 8  # bytes of a float64, which every number becomes


def read_numpy(path: Path) -> NDArray[Any] | dict[str, NDArray[Any]]:
    """The array of an `.npy`, or the arrays of an `.npz` by their names."""
    data = read_bytes(path)
    try:
        if data.startswith(_ZIP):
            return _unpack_archive(data)
        return _checked(np.load(io.BytesIO(data), allow_pickle=False), most=len(data) * _ITEM)
    except Exception as error:  # a damaged header raises many kinds of errors
        raise UserError(f"{str(path)!r} is not a NumPy file of plain arrays: {_reason(error)}") from None


def _unpack_archive(data: bytes) -> dict[str, NDArray[Any]]:
    most = most_unpacked(len(data))
    with zipfile.ZipFile(io.BytesIO(data)) as members:
        _refuse_bomb(sum(member.file_size for member in members.infolist()), most)
    with np.load(io.BytesIO(data), allow_pickle=False) as archive:
        arrays = {name: _checked(archive[name], most=most) for name in archive.files}
    _refuse_bomb(sum(array.size * _ITEM for array in arrays.values()), most)
    return arrays


def _checked(array: Any, *, most: int) -> NDArray[Any]:
    if not isinstance(array, np.ndarray):
        raise ValueError("it holds something that is no array")
    if not array.itemsize:
        raise ValueError(f"an array of {array.dtype} holds nothing")
    _refuse_bomb(array.size * _ITEM, most)
    return array


def _refuse_bomb(size: int, most: int) -> None:
    if size > most:
        raise ValueError(f"it unpacks to {size:,} bytes, expected at most {most:,}; save it without compression")


def _reason(error: BaseException) -> str:
    if isinstance(error, MemoryError):
        return "it declares more than there is memory for"
    return str(error).partition(" If you trust")[0] or type(error).__name__  # the rest is advice to unpickle it


def read_matlab(path: Path) -> dict[str, Any]:
    """The variables of a MATLAB file by name."""
    matlab = optional("scipy.io.matlab", extra="matlab", needed_by="MATLAB files")
    data = read_bytes(path)
    try:
        _refuse_bomb(_unpacked(data), most_unpacked(len(data)))
        variables: dict[str, Any] = matlab.loadmat(io.BytesIO(data))
    except NotImplementedError:
        raise UserError(f"{str(path)!r} is a MATLAB 7.3 file", fix="save it in MATLAB with the option '-v7'") from None
    except Exception as error:
        raise UserError(f"{str(path)!r} is not a MATLAB file that can be read: {_reason(error)}") from None
    return variables


def _unpacked(data: bytes) -> int:
    """Unpacked size of a version 5 file in bytes; counting stops above the limit."""
    order = "<" if data[126:128] == b"IM" else ">"
    most, size, at = most_unpacked(len(data)), 0, 128
    while at + 8 <= len(data) and size <= most:
        kind, length = struct.unpack_from(f"{order}2I", data, at)
        at += 8
        if kind != 15:  # not compressed
            size += length
        else:
            unpack = zlib.decompressobj()
            size += len(unpack.decompress(data[at : at + length], most + 1))
        at += length
    return size


class Arrays(NamedTuple):
    """`labels` are text; whole numbers have no decimal point. Values keep their dtype, and so their precision."""

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

    From a table, the column `label`; all others are one sequence from left to right.
    If not `labelled`, the labels may be missing and are empty.
    """
    path = Path(path)
    if suffix(path) == ".npz":
        return Arrays(*_labelled_archive(path, values, str(label) if labelled else None, grids=False))
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
    return Grids(*_labelled_archive(path, values, label if labelled else None, grids=True))


def numbers_in(text: str, *, where: object) -> NDArray[np.float64]:
    """The numbers of a text, between spaces or commas; brackets around them are allowed."""
    cells = text.strip().removeprefix("[").removesuffix("]").replace(",", " ").split()
    try:
        values_C = np.array([float(cell) for cell in cells])
    except ValueError:
        values_C = np.array([np.nan])
    if not cells or not (np.abs(values_C) <= LARGEST).all():
        raise UserError(
            f"{where}: {text[:60]!r} is not a list of finite numbers",
            fix="write numbers with a decimal point, and spaces between them: 0.5 -1 3e2",
        )
    return values_C


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


def _labelled_archive(
    path: Path, values: str, label: str | None, *, grids: bool
) -> tuple[NDArray[Any], list[str], list[Where]]:
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


Part = Literal["", "train", "validation", "test"]
# How the piano rolls of Boulanger-Lewandowski et al. (2012) name their parts, and what else is common.
_PARTS: dict[str, Part] = {
    "train": "train",
    "valid": "validation",
    "validation": "validation",
    "val": "validation",
    "dev": "validation",
    "test": "test",
}


class ArraySeries(NamedTuple):
    """A series of a file, not yet checked."""

    name: str
    values: NDArray[Any]
    time: NDArray[Any] | None = None
    covariates: NDArray[Any] | None = None
    part: Part = ""


def read_npy(path: Path) -> list[ArraySeries]:
    """`[T]`, `[T, C]`, or `[N, T, C]`."""
    loaded = read_numpy(path)
    if isinstance(loaded, dict):
        raise UserError(f"{str(path)!r} is an archive of arrays", fix="name it .npz")
    return _some("", loaded)


def read_npz(path: Path) -> list[ArraySeries]:
    """`values` with optional `time` and `covariates`; else every array is a series with its own name."""
    arrays = read_numpy(path)
    if isinstance(arrays, np.ndarray):
        raise UserError(f"{str(path)!r} is a single array", fix="name it .npy")
    if not arrays:
        raise UserError(f"{str(path)!r} holds no arrays")
    if "values" not in arrays:
        return [series for name, array in arrays.items() for series in _some(name, array)]
    if extra := sorted(arrays.keys() - {"values", "time", "covariates"}):
        raise UserError(f"{str(path)!r}: beside 'values' there may be 'time' and 'covariates', not {extra[0]!r}")
    values, time, covariates = (arrays.get(name) for name in ("values", "time", "covariates"))
    assert values is not None
    if values.ndim < 3 or not values.size:
        return [ArraySeries("", values, time, covariates)]
    for name, array in (("time", time), ("covariates", covariates)):
        if array is not None and len(array) != len(values) and not (name == "time" and array.ndim == 1):
            raise UserError(f"{str(path)!r}: {len(values)} series of values, but {len(array)} of {name}")
    return [
        ArraySeries(
            str(n),
            values[n],
            None if time is None else (time if time.ndim == 1 else time[n]),
            None if covariates is None else covariates[n],
        )
        for n in range(len(values))
    ]


def read_mat(path: Path) -> list[ArraySeries]:
    """Matrices `[T, C]`, and cell arrays of them; `traindata`, `validdata`, `testdata` are parts of a split."""
    series: list[ArraySeries] = []
    for name, value in read_matlab(path).items():
        if name.startswith("__"):
            continue
        part: Part = _PARTS.get(name.lower().removesuffix("data").rstrip("_"), "")
        cells = list(value.flat) if value.dtype == object else [value]
        for number, cell in enumerate(cells):
            if not isinstance(cell, np.ndarray) or cell.ndim != 2:
                raise UserError(f"{str(path)!r}: {name}{{{number + 1}}} is not a matrix of numbers")
            series.append(ArraySeries(f"{name}/{number}" if len(cells) > 1 else name, cell, part=part))
    if not series:
        raise UserError(f"{str(path)!r} holds no matrices")
    return series


def _some(name: str, array: NDArray[Any]) -> list[ArraySeries]:
    part: Part = _PARTS.get(name.lower(), "")
    if array.ndim == 3 and array.size:
        prefix = f"{name}/" if name else ""
        return [ArraySeries(f"{prefix}{n}", values, part=part) for n, values in enumerate(array)]
    return [ArraySeries(name, array, part=part)]
