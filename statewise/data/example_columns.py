"""Columns of examples on disk: texts, ids, names, numbers and the places they were read at.

N rows, V values of all rows together.
"""

import hashlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, Self, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from statewise.data.disk_rows import DiskRows, Index
from statewise.data.lines import Where
from statewise.data.shards import REBUILD, ShardedArray
from statewise.specs import UserError

E = TypeVar("E")

_BLOCK = 1 << 10  # rows whose ends are read at once
# Rows read here and there, after which mapped pages are released: the operating system may map two megabytes around
# each.
_RELEASED = 1 << 6


class _Chosen(DiskRows[E], ABC):
    """Rows of a column, or some of them (`index_N`)."""

    def __init__(self, count: int, index_N: Index | None) -> None:
        self._count, self._index_N = count, index_N

    def __len__(self) -> int:
        return self._count if self._index_N is None else len(self._index_N)

    def chosen(self, index: Sequence[int] | Index) -> Self:
        index_M = np.asarray(index, dtype=np.int64)
        return self._of(index_M if self._index_N is None else self._index_N[index_M])

    def _blocks(self) -> Iterator[Index]:
        """The numbers of all rows in the column, some at a time."""
        for begin in range(0, len(self), _BLOCK):
            stop = min(begin + _BLOCK, len(self))
            yield np.arange(begin, stop) if self._index_N is None else self._index_N[begin:stop]

    def _place(self, at: int) -> int:
        return at if self._index_N is None else int(self._index_N[at])

    @abstractmethod
    def _of(self, index_N: Index) -> Self: ...


class _Ragged(_Chosen[E], ABC):
    """Rows of unequal length, one after the other in `values_V`; row n ends at `ends_N[n]`."""

    def __init__(self, values_V: ShardedArray, ends_N: ShardedArray, index_N: Index | None = None) -> None:
        super().__init__(len(ends_N), index_N)
        self._values_V, self._ends_N, self._since = values_V, ends_N, 0

    def __iter__(self) -> Iterator[E]:
        return map(self._made, self.values())

    @property
    def lengths_N(self) -> Index:
        ends_N = self._ends_N[:]
        self._ends_N.release()
        lengths_N: Index = np.diff(ends_N, prepend=0)
        return lengths_N if self._index_N is None else lengths_N[self._index_N]

    @property
    def begins_N(self) -> Index:
        """Where each row begins among all values."""
        whole = self if self._index_N is None else self._of(np.arange(self._count))
        begins_N: Index = np.cumsum(whole.lengths_N) - whole.lengths_N
        return begins_N if self._index_N is None else begins_N[self._index_N]

    def values(self) -> Iterator[NDArray[Any]]:
        """Of each row, as they are stored."""
        for row_B in self._blocks():
            begin_B = np.where(row_B > 0, self._ends_N[np.maximum(row_B - 1, 0)], 0)
            for begin, stop in zip(begin_B.tolist(), self._ends_N[row_B].tolist()):
                yield self._between(begin, stop)
            self._release()

    def _row(self, at: int) -> E:
        self._count_read(1)
        row = self._place(at)
        begin, stop = (0, *self._ends_N[:1].tolist()) if row == 0 else self._ends_N[row - 1 : row + 1].tolist()
        return self._made(self._between(begin, stop))

    def _between(self, begin: int, stop: int) -> NDArray[Any]:
        if not 0 <= begin <= stop <= len(self._values_V):
            raise UserError("a row of examples ends where none can: their index is damaged", fix=REBUILD)
        return self._values_V[begin:stop]

    def _count_read(self, rows: int) -> None:
        self._since += rows
        if self._since >= _RELEASED:
            self._since = 0
            self._release()

    def _release(self) -> None:
        self._values_V.release()
        self._ends_N.release()

    def _of(self, index_N: Index) -> Self:
        return type(self)(self._values_V, self._ends_N, index_N)

    @abstractmethod
    def _made(self, values: NDArray[Any]) -> E: ...


@final
class Texts(_Ragged[str]):
    def numbered(self) -> Index:
        """Each text's number in order of first appearance, by a hash of 128 bits: no text is kept."""
        hash_N2 = np.empty((len(self), 2), dtype=np.uint64)
        for row, values in enumerate(self.values()):
            hash_N2[row] = np.frombuffer(hashlib.blake2b(values.data, digest_size=16).digest(), np.uint64)
        order_N = np.lexsort(hash_N2.T)  # stable: of equal texts the first one comes first
        sorted_N2 = hash_N2[order_N]
        begins_N = np.ones(len(self), dtype=bool)
        begins_N[1:] = (sorted_N2[1:] != sorted_N2[:-1]).any(1)
        first_G = order_N[begins_N]
        number_G = np.empty(len(first_G), dtype=np.int64)
        number_G[np.argsort(first_G, kind="stable")] = np.arange(len(first_G))
        number_N: Index = np.empty(len(self), dtype=np.int64)
        number_N[order_N] = number_G[np.cumsum(begins_N) - 1]
        return number_N

    def most_frequent(self) -> str:
        """Of several, the one that comes first."""
        number_N = self.numbered()
        return str(self[int(np.argmax(number_N == np.bincount(number_N).argmax()))])

    def _made(self, values: NDArray[Any]) -> str:
        return bytes(values).decode("utf-8", "replace")


@final
class Ids(_Ragged[Index]):
    def padded(self, row_U: Index) -> tuple[Index, Index]:
        """Some rows at once, with zeros after their ends, and their lengths."""
        row_U = row_U if self._index_N is None else self._index_N[row_U]
        begin_U = np.where(row_U > 0, self._ends_N[np.maximum(row_U - 1, 0)], 0)
        length_U = self._ends_N[row_U] - begin_U
        at_C = np.arange(length_U.max(initial=1))
        inside_UC = at_C < length_U[:, None]
        padded_UC = np.zeros(inside_UC.shape, dtype=np.int64)
        padded_UC[inside_UC] = self._values_V[(begin_U[:, None] + at_C)[inside_UC]]
        self._count_read(len(row_U))
        return padded_UC, length_U

    def _made(self, values: NDArray[Any]) -> Index:
        ids: Index = values.astype(np.int64)
        return ids


@final
class Names(_Chosen[str]):
    """Texts of a few kinds: `kind_N` is the number of each."""

    def __init__(self, names: Sequence[str], kind_N: NDArray[Any], index_N: Index | None = None) -> None:
        super().__init__(len(kind_N), index_N)
        self.names, self._kind_N = tuple(names), kind_N

    @cached_property
    def kind_N(self) -> NDArray[Any]:
        return self._kind_N if self._index_N is None else self._kind_N[self._index_N]

    @property
    def counts(self) -> Counter[str]:
        """How often each of them is there."""
        count_K = np.bincount(self.kind_N, minlength=len(self.names)).tolist()
        return Counter({name: count for name, count in zip(self.names, count_K) if count})

    @property
    def lengths_N(self) -> Index:
        lengths_N: Index = np.array(list(map(len, self.names)), dtype=np.int64)[self.kind_N]
        return lengths_N

    def __iter__(self) -> Iterator[str]:
        for row_B in self._blocks():
            yield from (self.names[kind] for kind in self._kind_N[row_B].tolist())

    def _row(self, at: int) -> str:
        return self.names[int(self._kind_N[self._place(at)])]

    def _of(self, index_N: Index) -> "Names":
        return Names(self.names, self._kind_N, index_N)


@final
class Coded:
    """Numbers on disk that stand for others, as an array of those: indexed by positions."""

    def __init__(self, number_N: ShardedArray, decode: Callable[[Index], Index]) -> None:
        self._number_N, self._decode = number_N, decode

    def __len__(self) -> int:
        return len(self._number_N)

    def __getitem__(self, at: Index) -> Index:
        number = self._number_N[at].astype(np.int64)
        self._number_N.release()
        return self._decode(number)


@final
class Places(_Chosen[Where]):
    """Where examples were read."""

    def __init__(self, files: Texts, file_N: ShardedArray, line_N: ShardedArray, index_N: Index | None = None) -> None:
        super().__init__(len(file_N), index_N)
        self._files, self._file_N, self._line_N = files, file_N, line_N

    @property
    def lengths_N(self) -> Index:
        raise NotImplementedError

    def __iter__(self) -> Iterator[Where]:
        for row_B in self._blocks():
            yield from self._read(row_B)

    def _row(self, at: int) -> Where:
        return next(self._read(np.array([self._place(at)])))

    def _read(self, row_B: Index) -> Iterator[Where]:
        file_B, line_B = self._file_N[row_B], self._line_N[row_B]
        names = {file: self._files[file].rpartition("\0") for file in np.unique(file_B).tolist()}
        for file, line in zip(file_B.tolist(), line_B.tolist()):
            path, _, unit = names[file]
            yield Where(path, line, unit)
        self._file_N.release()
        self._line_N.release()

    def _of(self, index_N: Index) -> "Places":
        return Places(self._files, self._file_N, self._line_N, index_N)
