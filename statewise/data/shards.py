"""Tokens in shards of a fixed size on disk: read as one array, each shard checked when it is first touched.

A folder holds `train-00000.tokens`, `train-00001.tokens` and so on, the same of `validation`, how often each token
occurs (`train.counts`), `tokenizer.json`, and `index.json`, which is written last.
"""

import hashlib
import json
import mmap
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from statewise.data.source import file_sha256
from statewise.disk import write
from statewise.specs import UserError, from_json, read_small

INDEX = "index.json"
SHARD_TOKENS = 1 << 23  # a batch of random rows touches a shard for each row: they should be checked within a second

_SMALLEST = 3  # tokens of a part: one beside the two ends
_MOST = 1 << 50  # tokens of a part, and bytes of its text
LARGEST_INDEX = 1 << 26  # bytes: enough for a million shards
_MOST_MAPPED = 256  # shards at a time; each takes a file handle
REBUILD = "copy the folder again, or build it again: statewise data build"

Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
PartName = Literal["train", "validation"]


class Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Sealed(Strict):
    """An index, whose sha256 is written with it."""

    @property
    def sha256(self) -> str:
        return hashlib.sha256(json.dumps(self.model_dump(), sort_keys=True).encode()).hexdigest()

    def file(self) -> str:
        return json.dumps({"index": self.model_dump(), "sha256": self.sha256}, indent=1) + "\n"


C = TypeVar("C", bound=Sealed)


class PartIndex(Strict):
    """A stream of so many tokens, the bytes of its text, and the sha256 of its shards and of its counts."""

    tokens: int = Field(ge=1, le=_MOST)
    bytes: int = Field(ge=0, le=_MOST)
    unknown: int = Field(ge=0, le=_MOST)
    shards: list[Sha256]
    counts: Sha256


class Index(Sealed):
    """What a folder holds. `made` is how: the settings that decided what the tokens are."""

    version: Literal[1]
    name: str
    dtype: Literal["<u2", "<u4"]
    shard_tokens: int = Field(ge=1, le=1 << 32)
    tokenizer: Sha256
    made: dict[str, Any]
    train: PartIndex
    validation: PartIndex


def is_sharded(path: Path) -> bool:
    """Whether a folder holds tokens: it has their index."""
    return (path / INDEX).is_file()


def shard_file(folder: Path, part: PartName, number: int) -> Path:
    return folder / f"{part}-{number:05d}.tokens"


def write_index(folder: Path, index: Index) -> None:
    write(folder / INDEX, index.file())


def read_index(folder: Path) -> Index:
    """The index, if it is whole and the folder has the shards that it lists, in the right sizes."""
    index = read_checked(folder / INDEX, Index, of="tokens")
    for part in (index.train, index.validation):
        if part.tokens < _SMALLEST or not part.bytes:
            raise damaged(folder / INDEX, "a part of it holds no token")
        if len(part.shards) != -(-part.tokens // index.shard_tokens):
            raise damaged(folder / INDEX, f"it lists {len(part.shards)} shards for {part.tokens} tokens")
    return index


def read_checked(path: Path, kind: type[C], *, of: str) -> C:
    """An index that was written with its own sha256."""
    try:
        table = from_json(read_small(path, largest=LARGEST_INDEX))
        index = kind.model_validate(table["index"])
        if table["sha256"] != index.sha256:
            raise ValueError("its sha256 is another")
    except OSError as error:
        raise UserError(f"{str(path)!r} cannot be read: {error.strerror or error}") from None
    except ValidationError as error:
        first = error.errors()[0]
        reason = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise UserError(f"{str(path)!r} is no index of {of}: {reason}", fix=REBUILD) from None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise damaged(path, error) from None
    return index


def damaged(path: Path, why: object) -> UserError:
    return UserError(f"{str(path)!r} is damaged: {why}", fix=REBUILD)


class ShardedArray:
    """Numbers in files of one size, as a read-only array: indexed by a slice or by an array of positions.

    `file` names the shard of a number, `sha256s` are those of all shards, and `size` counts the numbers of all.
    With `below`, a number that is less than 0 or not below it is refused.
    """

    def __init__(
        self,
        file: Callable[[int], Path],
        *,
        dtype: str,
        size: int,
        shard_size: int,
        sha256s: Sequence[str],
        below: int | None = None,
    ) -> None:
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self._file, self._size, self._shard_size, self._sha256s = file, size, shard_size, sha256s
        self._below = below
        self._checked: set[int] = set()
        self._mapped: OrderedDict[int, NDArray[Any]] = OrderedDict()
        for number in range(len(sha256s)):
            self._refuse_size(number)

    def __len__(self) -> int:
        return self._size

    @property
    def nbytes(self) -> int:
        return len(self) * self.dtype.itemsize

    @property
    def shape(self) -> tuple[int]:
        return (len(self),)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return self[:].astype(dtype or self.dtype, copy=False)

    def __getitem__(self, at: slice | NDArray[np.integer]) -> NDArray[Any]:
        if isinstance(at, slice):
            begin, stop, step = at.indices(len(self))
            assert step == 1
            return self._between(begin, max(begin, stop))
        place = at.ravel()
        shard, place = np.divmod(np.where(place < 0, place + len(self), place), self._shard_size)
        out = np.empty(len(place), self.dtype)
        # Rows are runs of positions, and a run lies in one shard or two.
        borders = [0, *(np.flatnonzero(np.diff(shard)) + 1).tolist(), len(place)]
        for begin, stop in pairwise(borders):
            if stop > begin:
                out[begin:stop] = self._shard(int(shard[begin]))[place[begin:stop]]
        return out.reshape(at.shape)

    def release(self) -> None:
        """Release the pages of mapped shards; until then they count as memory of the process."""
        for shard in self._mapped.values():
            release_pages(shard)

    def _between(self, begin: int, stop: int) -> NDArray[Any]:
        out = np.empty(stop - begin, self.dtype)
        at = begin
        while at < stop:
            number, first = divmod(at, self._shard_size)
            part = self._shard(number)[first : first + stop - at]
            out[at - begin : at - begin + len(part)] = part
            at += len(part)
        return out

    def _shard(self, number: int) -> NDArray[Any]:
        if number in self._mapped:
            self._mapped.move_to_end(number)
            return self._mapped[number]
        path = self._file(number)
        if number not in self._checked:
            refuse_other(path, self._sha256s[number], size=self._shard_bytes(number))
        try:
            self._mapped[number] = np.memmap(path, self.dtype, mode="r")
        except OSError as error:
            raise UserError(f"{str(path)!r} cannot be read: {error.strerror or error}", fix=REBUILD) from None
        if number not in self._checked:
            self._refuse_range(self._mapped[number], path)
            self._checked.add(number)
        if len(self._mapped) > _MOST_MAPPED:
            self._mapped.popitem(last=False)
        return self._mapped[number]

    def _refuse_range(self, shard: NDArray[Any], path: Path) -> None:
        if self._below is None:
            return
        if int(shard.min()) < 0 or int(shard.max()) >= self._below:
            raise UserError(f"{str(path)!r} holds a number that is not below {self._below:,}", fix=REBUILD)
        release_pages(shard)

    def _shard_bytes(self, number: int) -> int:
        """The last shard is shorter."""
        return min(self._shard_size, len(self) - number * self._shard_size) * self.dtype.itemsize

    def _refuse_size(self, number: int) -> None:
        path, size = self._file(number), self._shard_bytes(number)
        try:
            there = path.stat().st_size
        except OSError:
            raise UserError(f"{str(path)!r} is missing: the index lists it", fix=REBUILD) from None
        if there != size:
            raise UserError(f"{str(path)!r} has {there:,} bytes, and the index says {size:,}", fix=REBUILD)


class ShardedTokens(ShardedArray):
    """A stream of tokens, and how often each of them occurs."""

    def __init__(self, folder: Path, part: PartName, index: Index) -> None:
        made: PartIndex = getattr(index, part)
        self._counts = folder / f"{part}.counts", made.counts
        super().__init__(
            partial(shard_file, folder, part),
            dtype=index.dtype,
            size=made.tokens,
            shard_size=index.shard_tokens,
            sha256s=made.shards,
        )

    def counts_V(self, vocab: int) -> NDArray[np.int64]:
        """How often each id is a target, as it was counted when the shards were written."""
        path, sha256 = self._counts
        refuse_other(path, sha256, size=8 * vocab)
        counts_V = np.fromfile(path, "<i8").astype(np.int64)
        within = int(counts_V.min()) >= 0 and int(counts_V.max()) < len(self)
        if not within or int(counts_V.sum()) != len(self) - 1:
            raise UserError(f"{str(path)!r} is not how often tokens occur: {len(self) - 1:,} in all", fix=REBUILD)
        return counts_V


Tokens: TypeAlias = NDArray[np.unsignedinteger] | ShardedTokens


def release(tokens: Tokens) -> None:
    """Release the pages of mapped files; until then they count as memory of the process."""
    if isinstance(tokens, ShardedTokens):
        tokens.release()
    else:
        release_pages(tokens)


def release_pages(tokens: NDArray[Any]) -> None:
    if isinstance(tokens, np.memmap) and hasattr(mmap, "MADV_DONTNEED"):
        getattr(tokens, "_mmap").madvise(mmap.MADV_DONTNEED)  # noqa: B009 (NumPy's name for it, untyped)


def refuse_other(path: Path, sha256: str, *, size: int | None = None) -> None:
    """A file must be as long as the index says (where it does), and have its sha256."""
    try:
        there = path.stat().st_size
    except OSError:
        raise UserError(f"{str(path)!r} is missing: the index lists it", fix=REBUILD) from None
    if size not in (None, there) or file_sha256(path) != sha256:
        raise UserError(f"{str(path)!r} is damaged: its sha256 is not the index's", fix=REBUILD)


@dataclass(frozen=True)
class Folder:
    """An opened folder of shards."""

    index: Index
    train: ShardedTokens
    validation: ShardedTokens


def open_shards(folder: Path) -> Folder:
    index = read_index(folder)
    return Folder(index, ShardedTokens(folder, "train", index), ShardedTokens(folder, "validation", index))
