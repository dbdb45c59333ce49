"""Write examples to disk as columns, while they are read."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from statewise.data.example_shards import (
    ColumnIndex,
    ExampleFolder,
    ExampleIndex,
    read_example_index,
    value_file,
)
from statewise.data.file import EXAMPLES, files_at
from statewise.data.lines import Where
from statewise.data.token_stream import Progress
from statewise.disk import LOCK, TEMPORARY, locked, make_folder, write
from statewise.specs import UserError, from_json, option, read_small

E = TypeVar("E")

SHARD_BYTES = 1 << 22  # of a shard, which is checked as a whole when a row of it is read
AT_ONCE = 1 << 10  # examples that are held while they are read and encoded
_UNFINISHED = "unfinished.json"


class _Column:
    """Numbers that become shards as soon as there are enough of them."""

    def __init__(self, folder: Path, name: str, dtype: str, shard_bytes: int) -> None:
        self._folder, self._name, self._dtype = folder, name, np.dtype(dtype)
        self._shard_bytes = max(1, shard_bytes // self._dtype.itemsize) * self._dtype.itemsize
        self._buffer, self._sha256s = bytearray(), list[str]()
        self.size = 0

    def add(self, values: NDArray[Any] | bytes) -> None:
        content = values if isinstance(values, bytes) else np.asarray(values).astype(self._dtype).tobytes()
        self.size += len(content) // self._dtype.itemsize
        self._buffer += content
        while len(self._buffer) >= self._shard_bytes:
            self._finish(self._shard_bytes)

    def close(self) -> ColumnIndex:
        if self._buffer:
            self._finish(len(self._buffer))
        return ColumnIndex(
            dtype=self._dtype.str,  # type: ignore[arg-type]  # one of the literals, or refused
            size=self.size,
            shard=self._shard_bytes // self._dtype.itemsize,
            shards=self._sha256s,
        )

    def _finish(self, size: int) -> None:
        content = bytes(self._buffer[:size])
        del self._buffer[:size]
        write(value_file(self._folder, self._name, len(self._sha256s)), content)
        self._sha256s.append(hashlib.sha256(content).hexdigest())


@final
class ExampleWriter:
    """Columns of a folder. What is written can be read as soon as `read` has closed it; nothing is added then."""

    def __init__(
        self,
        folder: Path,
        *,
        shard_bytes: int = SHARD_BYTES,
        progress: Progress | None = None,
        source_bytes: int = 0,
    ) -> None:
        """`source_bytes` is the size of the files that are read, for `progress`."""
        self.folder, self.facts = folder, dict[str, Any]()
        self._shard_bytes, self._progress = shard_bytes, progress
        self._source_bytes, self._read_bytes = source_bytes, 0
        self._open, self._closed = dict[str, _Column](), dict[str, ColumnIndex]()
        self._files, self._where = dict[str, str](), ("", "")

    def texts(self, name: str, texts: Sequence[str]) -> None:
        encoded = [text.encode() for text in texts]
        content = b"".join(encoded)
        self._column(name, "|u1").add(content)
        self._ends(name, encoded)
        self._read_bytes += len(content)
        if self._progress is not None:
            self._progress("reading", min(self._read_bytes, self._source_bytes), max(1, self._source_bytes))

    def ids(self, name: str, rows: Sequence[NDArray[Any]], *, vocab: int) -> None:
        column = self._column(name, "<u2" if vocab <= 1 << 16 else "<u4")
        column.add(np.concatenate([np.zeros(0, np.int64), *rows]))
        self._ends(name, rows)

    def rows(self, name: str) -> int:
        """How many a column of texts or of ids has."""
        column = self._open.get(f"{name}.ends")
        return 0 if column is None else column.size

    def numbers(self, name: str, values: NDArray[Any] | Sequence[int]) -> None:
        self._column(name, "<i8").add(np.asarray(values, dtype=np.int64))

    def small(self, name: str, values: NDArray[Any]) -> None:
        """Numbers below 2^32."""
        self._column(name, "<u4").add(values)

    def places(self, places: Iterable[Where]) -> None:
        files, lines = [], []
        for where in places:
            if self._where != (where.path, where.unit):
                self._where = where.path, where.unit
                self.texts("files", ["\0".join(self._where)])
            files.append(self._column("files.ends", "<i8").size - 1)
            lines.append(where.line)
        self.numbers("file", files)
        self.numbers("line", lines)

    def parts(self, train_N: NDArray[np.int64], held_N: NDArray[np.int64]) -> None:
        """Which rows are learned from, and which are held out."""
        self.numbers("train_rows", train_N)
        self.numbers("validation_rows", held_N)

    def file(self, name: str, content: str) -> None:
        """A vocabulary."""
        write(self.folder / name, content)
        self._files[name] = hashlib.sha256(content.encode()).hexdigest()

    def read(self) -> ExampleFolder:
        """All that was written until now."""
        self._closed |= {name: column.close() for name, column in self._open.items()}
        self._open = {}
        return ExampleFolder(self.folder, self._index("", {}))

    def encoded(self, done: int, total: int) -> None:
        """So many examples of all: for `progress`."""
        if self._progress is not None:
            self._progress("encoding", self._read_bytes * done // total, max(1, self._read_bytes))

    def finish(self, task: str, made: Mapping[str, Any]) -> ExampleIndex:
        self.read()
        index = self._index(task, made)
        write(self.folder / EXAMPLES, index.file())
        return index

    def _index(self, task: str, made: Mapping[str, Any]) -> ExampleIndex:
        return ExampleIndex(
            version=1, task=task, made=dict(made), facts=self.facts, columns=self._closed, files=self._files
        )

    def _ends(self, name: str, rows: Sequence[Any]) -> None:
        before = self._open[name].size - sum(map(len, rows))
        self._column(f"{name}.ends", "<i8").add(before + np.cumsum(list(map(len, rows)), dtype=np.int64))

    def _column(self, name: str, dtype: str) -> _Column:
        assert name not in self._closed, f"{name} is closed"
        if name not in self._open:
            self._open[name] = _Column(self.folder, name, dtype, self._shard_bytes)
        return self._open[name]


def some_at_once(examples: Iterable[E], *, size: int = AT_ONCE) -> Iterator[list[E]]:
    waiting = iter(examples)
    while some := list(islice(waiting, size)):
        yield some


def stamp(names: Iterable[str]) -> list[Any]:
    """Sources by the names, sizes and times of their files."""
    found: list[Any] = []
    for name in names:
        path = Path(name)
        files = files_at(path) if path.exists() else []  # what is no file is a dataset of the hub
        found.append([name, [[str(file), file.stat().st_size, file.stat().st_mtime_ns] for file in files]])
    return found


@contextmanager
def building(folder: Path, key: str) -> Iterator[bool]:
    """A folder of examples that is locked, empty, and marked as unfinished; False: it is finished already.

    An interrupted build begins again. A folder with anything else in it is refused.
    """
    make_folder(folder)
    with locked(folder):
        names = {path.name for path in folder.iterdir() if not path.name.startswith(TEMPORARY)} - {LOCK}
        if EXAMPLES in names:
            if read_example_index(folder).made.get("key") != key:
                raise UserError(
                    f"{str(folder)!r} holds examples of other files, or made with other settings",
                    fix=f"name another folder: {option('out', 'FOLDER')}",
                )
            (folder / _UNFINISHED).unlink(missing_ok=True)
            yield False
            return
        if names and not _is_ours(folder):
            raise UserError(
                f"{str(folder)!r} holds other files: {', '.join(sorted(names)[:3])}",
                fix=f"name an empty folder: {option('out', 'FOLDER')}",
            )
        write(folder / _UNFINISHED, json.dumps({"examples": key}))  # before all else: a kill may come
        _empty(folder)
        try:
            yield True
        except BaseException:
            _empty(folder)
            raise
        finally:
            (folder / _UNFINISHED).unlink()


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        if path.name not in (LOCK, _UNFINISHED):
            path.unlink()


def _is_ours(folder: Path) -> bool:
    try:
        return "examples" in from_json(read_small(folder / _UNFINISHED))
    except (OSError, ValueError, TypeError):
        return False
