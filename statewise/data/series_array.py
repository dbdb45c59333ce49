"""Series in NumPy and MATLAB files. Nothing is unpickled.

N series, T time, C channels.
"""

from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from statewise.data.numpy_file import read_matlab, read_numpy
from statewise.specs import UserError

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
    """One series as a file holds it, not yet checked."""

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
    """`values` with `time` and `covariates` beside it; or else every array is a series of its own name."""
    arrays = read_numpy(path)
    if isinstance(arrays, np.ndarray):
        raise UserError(f"{str(path)!r} is a single array", fix="name it .npy")
    if not arrays:
        raise UserError(f"{str(path)!r} holds no arrays")
    if "values" not in arrays:
        return [one for name, array in arrays.items() for one in _some(name, array)]
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
    found: list[ArraySeries] = []
    for name, value in read_matlab(path).items():
        if name.startswith("__"):
            continue
        part: Part = _PARTS.get(name.lower().removesuffix("data").rstrip("_"), "")
        cells = list(value.flat) if value.dtype == object else [value]
        for number, cell in enumerate(cells):
            if not isinstance(cell, np.ndarray) or cell.ndim != 2:
                raise UserError(f"{str(path)!r}: {name}{{{number + 1}}} is not a matrix of numbers")
            found.append(ArraySeries(f"{name}/{number}" if len(cells) > 1 else name, cell, part=part))
    if not found:
        raise UserError(f"{str(path)!r} holds no matrices")
    return found


def _some(name: str, array: NDArray[Any]) -> list[ArraySeries]:
    part: Part = _PARTS.get(name.lower(), "")
    if array.ndim == 3 and array.size:
        prefix = f"{name}/" if name else ""
        return [ArraySeries(f"{prefix}{n}", one, part=part) for n, one in enumerate(array)]
    return [ArraySeries(name, array, part=part)]
