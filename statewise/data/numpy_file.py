"""NumPy's and MATLAB's files, read within bounds: nothing is unpickled, and no small file fills the memory."""

import io
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from statewise.data.lines import most_unpacked, read_bytes
from statewise.specs import UserError, optional

_ZIP = b"PK"
_ITEM = 8  # bytes of a number, once it is a float64


def read_numpy(path: Path) -> NDArray[Any] | dict[str, NDArray[Any]]:
    """The array of an `.npy`, or the arrays of an `.npz` by their names."""
    data = read_bytes(path)
    try:
        if data.startswith(_ZIP):
            return _archive(data)
        return _checked(np.load(io.BytesIO(data), allow_pickle=False), most=len(data) * _ITEM)
    except Exception as error:  # a damaged header alone can raise a dozen kinds
        raise UserError(f"{str(path)!r} is not a NumPy file of plain arrays: {_reason(error)}") from None


def _archive(data: bytes) -> dict[str, NDArray[Any]]:
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
    return str(error).partition(" If you trust")[0] or type(error).__name__  # what follows is to unpickle it


def read_matlab(path: Path) -> dict[str, Any]:
    """What MATLAB saved, by its names."""
    matlab = optional("scipy.io.matlab", extra="matlab", needed_by="MATLAB files")
    data = read_bytes(path)
    try:
        _refuse_bomb(_unpacked(data), most_unpacked(len(data)))
        found: dict[str, Any] = matlab.loadmat(io.BytesIO(data))
    except NotImplementedError:
        raise UserError(f"{str(path)!r} is a MATLAB 7.3 file", fix="save it in MATLAB with the option '-v7'") from None
    except Exception as error:
        raise UserError(f"{str(path)!r} is not a MATLAB file that can be read: {_reason(error)}") from None
    return found


def _unpacked(data: bytes) -> int:
    """Bytes of a version 5 file once its compressed elements are unpacked, counted until there are too many."""
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
