"""Examples on disk: columns of texts, of ids and of numbers in shards, each checked when it is first touched.

A folder holds `source-00000.values`, `source-00001.values` and so on for each of its columns; where rows are of unequal
length, `source.ends-…` says where each of them ends; besides, the vocabularies that ids were made by, and
`examples.json`, which is written last. What a list of texts or of arrays can do, rows on disk can do too.

N rows, V values of all rows together.
"""

import hashlib
import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, Self, TypeVar, final, overload

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError

from statewise.data.lines import Where
from statewise.data.shards import LARGEST_INDEX, Sha256, ShardedArray, Strict, refuse_other
from statewise.specs import UserError, from_json, option, read_small

EXAMPLES = "examples.json"
REBUILD = "copy the folder again, or build it again: statewise data build"

Index = NDArray[np.int64]
E = TypeVar("E")
F = TypeVar("F")

_MOST = 1 << 50  # numbers of a column
_BLOCK = 1 << 10  # rows whose ends are read at once
_GATHERED = 4  # batches of places, after which mapped pages are released
_RELEASED = 1 << 8  # rows read one by one, after which mapped pages are released

Name = Annotated[str, Field(pattern=r"^[a-z]+(_[a-z]+)*(\.ends)?$")]
FileName = Annotated[str, Field(pattern=r"^[a-z]+\.json$")]


class ColumnIndex(Strict):
    """So many numbers, in shards of `shard` of them."""

    dtype: Literal["|u1", "<u2", "<u4", "<i8"]
    size: int = Field(ge=0, le=_MOST)
    shard: int = Field(ge=1, le=1 << 32)
    shards: list[Sha256]


class ExampleIndex(Strict):
    """What a folder holds. `made` is how: the settings that decided what the examples are."""

    version: Literal[1]
    task: str
    made: dict[str, Any]
    facts: dict[str, Any]
    columns: dict[Name, ColumnIndex]
    files: dict[FileName, Sha256]

    @property
    def sha256(self) -> str:
        return hashlib.sha256(json.dumps(self.model_dump(), sort_keys=True).encode()).hexdigest()


def holds_examples(path: str | Path) -> bool:
    return Path(path, EXAMPLES).is_file()


def names_examples(paths: Sequence[str]) -> bool:
    """Whether data are named that are a folder of examples, and nothing else."""
    if not any(map(holds_examples, paths)):
        return False
    if len(paths) > 1:
        raise UserError(
            f"{', '.join(paths)!r}: a folder of examples is trained on alone",
            fix="build one folder of all of these: statewise data build",
        )
    return True


def refuse_examples(paths: Sequence[str]) -> None:
    for path in paths:
        if holds_examples(path):
            raise UserError(
                f"{path!r} holds examples to train on, and a file is read here", fix="name what it was made of"
            )


def value_file(folder: Path, name: str, number: int) -> Path:
    return folder / f"{name}-{number:05d}.values"


def read_example_index(folder: Path) -> ExampleIndex:
    """The index, if it is whole."""
    path = folder / EXAMPLES
    try:
        table = from_json(read_small(path, largest=LARGEST_INDEX))
        index = ExampleIndex.model_validate(table["index"])
        if table["sha256"] != index.sha256:
            raise ValueError("its sha256 is another")
        for name, column in index.columns.items():
            if len(column.shards) != -(-column.size // column.shard):
                raise ValueError(f"it lists {len(column.shards)} shards for {column.size} numbers of {name}")
    except OSError as error:
        raise UserError(f"{str(path)!r} cannot be read: {error.strerror or error}") from None
    except ValidationError as error:
        first = error.errors()[0]
        reason = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise UserError(f"{str(path)!r} is no index of examples: {reason}", fix=REBUILD) from None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError(f"{str(path)!r} is damaged: {error}", fix=REBUILD) from None
    return index


class DiskRows(Sequence[E], ABC):
    """Rows that are read when they are asked for. A slice of them, or a choice, is rows on disk again."""

    @overload
    def __getitem__(self, at: int) -> E: ...

    @overload
    def __getitem__(self, at: slice) -> Self: ...

    def __getitem__(self, at: int | slice) -> E | Self:
        if isinstance(at, slice):
            return self.chosen(np.arange(len(self))[at])
        if not -len(self) <= at < len(self):
            raise IndexError(f"row {at} of {len(self)}")
        return self._row(int(at) % len(self))

    @abstractmethod
    def chosen(self, index: Sequence[int] | Index) -> Self: ...

    @property
    @abstractmethod
    def lengths_N(self) -> Index: ...

    @abstractmethod
    def _row(self, at: int) -> E: ...


def chosen(rows: Sequence[E], index: Sequence[int] | Index) -> Sequence[E]:
    """Some of the rows: of a list a list, of rows on disk rows on disk."""
    return rows.chosen(index) if isinstance(rows, DiskRows) else [rows[i] for i in index]


def lengths_of(rows: Sequence[Any]) -> Index:
    """How long each row is, without reading it where it lies on disk."""
    return rows.lengths_N if isinstance(rows, DiskRows) else np.fromiter(map(len, rows), np.int64, len(rows))


def mapped(rows: Sequence[E], read: Callable[[E], F], lengths_N: Callable[[Index], Index]) -> Sequence[F]:
    """`read` of each row: now where rows are a list, when it is asked for where they lie on disk."""
    return Mapped(rows, read, lengths_N) if isinstance(rows, DiskRows) else [read(row) for row in rows]


@final
class Mapped(DiskRows[F], Generic[E, F]):
    """`lengths_N` gives the lengths after `read` from those before."""

    def __init__(self, rows: DiskRows[E], read: Callable[[E], F], lengths_N: Callable[[Index], Index]) -> None:
        self._rows, self._read, self._lengths = rows, read, lengths_N

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[F]:
        return map(self._read, self._rows)

    def chosen(self, index: Sequence[int] | Index) -> "Mapped[E, F]":
        return Mapped(self._rows.chosen(index), self._read, self._lengths)

    @property
    def lengths_N(self) -> Index:
        return self._lengths(self._rows.lengths_N)

    def _row(self, at: int) -> F:
        return self._read(self._rows[at])


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

    def _row(self, at: int) -> str:
        return self.names[int(self._kind_N[self._place(at)])]

    def _of(self, index_N: Index) -> "Names":
        return Names(self.names, self._kind_N, index_N)


@final
class Coded:
    """Numbers on disk that stand for others, as an array of those: indexed by positions."""

    def __init__(self, number_N: ShardedArray, decode: Callable[[Index], Index]) -> None:
        self._number_N, self._decode, self._since = number_N, decode, 0

    def __len__(self) -> int:
        return len(self._number_N)

    def __getitem__(self, at: Index) -> Index:
        self._since += 1
        if self._since % _GATHERED == 0:
            self._number_N.release()
        return self._decode(self._number_N[at].astype(np.int64))


@final
class Places(_Chosen[Where]):
    """Where examples were read."""

    def __init__(self, files: Texts, file_N: ShardedArray, line_N: ShardedArray, index_N: Index | None = None) -> None:
        super().__init__(len(file_N), index_N)
        self._files, self._file_N, self._line_N = files, file_N, line_N

    @property
    def lengths_N(self) -> Index:
        raise NotImplementedError

    def _row(self, at: int) -> Where:
        row = np.array([self._place(at)])
        path, _, unit = self._files[int(self._file_N[row][0])].rpartition("\0")
        return Where(path, int(self._line_N[row][0]), unit)

    def _of(self, index_N: Index) -> "Places":
        return Places(self._files, self._file_N, self._line_N, index_N)


@final
class ExampleFolder:
    """Columns by name. Sizes of files are checked now, what is in them when it is first read."""

    def __init__(self, folder: Path, index: ExampleIndex) -> None:
        self.path, self.index = folder, index

    def numbers(self, name: str, *, below: int | None = None) -> ShardedArray:
        """A column of numbers; with `below`, a shard that holds a larger one is refused."""
        column = self.index.columns.get(name)
        if column is None:
            raise UserError(f"{str(self.path)!r} has no column {name!r}", fix=REBUILD)
        return ShardedArray(
            partial(value_file, self.path, name),
            dtype=column.dtype,
            size=column.size,
            shard_size=column.shard,
            sha256s=column.shards,
            below=below,
        )

    def texts(self, name: str) -> Texts:
        return Texts(self.numbers(name), self.numbers(f"{name}.ends"))

    def ids(self, name: str, *, below: int) -> Ids:
        return Ids(self.numbers(name, below=below), self.numbers(f"{name}.ends"))

    def names(self, name: str) -> Names:
        """A column of numbers that stand for the texts of another."""
        names = list(self.texts(f"{name}_names"))
        return Names(names, self.numbers(name, below=len(names))[:])

    def places(self) -> Places:
        files = self.texts("files")
        return Places(files, self.numbers("file", below=len(files)), self.numbers("line"))

    def part(self, name: Literal["train", "validation"]) -> Index:
        """Which rows are in a part, in the order of the files."""
        rows_N: Index = self.numbers(f"{name}_rows", below=self.fact("rows", int))[:]
        if not len(rows_N):
            raise UserError(f"{str(self.path)!r} holds no examples for {name}", fix=REBUILD)
        return rows_N

    def fact(self, name: str, kind: type[F]) -> F:
        found = self.index.facts.get(name)
        if not isinstance(found, kind):
            raise UserError(f"{str(self.path / EXAMPLES)!r} does not say {name!r}", fix=REBUILD)
        return found

    def check_files(self) -> None:
        """The vocabularies must be those that ids were made by."""
        for name, sha256 in self.index.files.items():
            refuse_other(self.path / name, sha256)


def index_for(folder: Path, task: str) -> ExampleIndex:
    """The index of a folder of examples for this task."""
    index = read_example_index(folder)
    if index.task != task:
        raise UserError(
            f"{str(folder)!r} holds examples for the task {index.task}, and {task} is trained",
            fix=f"build another folder: {option('for', task)}",
        )
    return index


def open_examples(folder: Path, task: str) -> ExampleFolder:
    opened = ExampleFolder(folder, index_for(folder, task))
    opened.check_files()
    return opened
