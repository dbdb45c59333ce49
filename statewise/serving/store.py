"""Saved states by id: a conversation is a few kilobytes that anybody with the same weights can continue.

A saved state is the content of the file that `statewise generate --save-state` writes. States are rows of an SQLite
database: in memory, or in a folder, where they survive the process. A state counts as saved when its transaction is
on disk. Nothing about the states is held in Python, so a million of them cost neither memory nor time at the start. Ids
come from requests and are values of a column, never a part of a path.
"""

import hashlib
import json
import re
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from statewise.disk import is_plain, make_folder
from statewise.serving.job import Refused
from statewise.specs import UserError

_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,127}")
_FILE = "states.sqlite"
_FORMAT = 1
_PAGE = 16384  # bytes: a state of a small recurrent model is one page
_CACHE = 16 << 20  # bytes of pages that each connection holds; the system holds the file's, too
_TABLES = """
CREATE TABLE IF NOT EXISTS states (
    number INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, owner TEXT NOT NULL, id TEXT NOT NULL, model TEXT NOT NULL,
    tokens INTEGER NOT NULL, bytes INTEGER NOT NULL, created INTEGER NOT NULL, used INTEGER NOT NULL,
    sha256 BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS by_use ON states (used, bytes);
CREATE INDEX IF NOT EXISTS by_owner ON states (owner, used);
CREATE TABLE IF NOT EXISTS contents (number INTEGER PRIMARY KEY, content BLOB NOT NULL);
"""
_ABOUT = "id, model, tokens, bytes, created"
# (A file can hold a value of any type in any column.)
_SHOWN = ", ".join(f"CAST({name} AS {'TEXT' if name in ('id', 'model') else 'INTEGER'})" for name in _ABOUT.split(", "))
_BESIDE = ("-wal", "-shm", "-journal")  # what SQLite opens with it
_MOST_TOUCHED = 10_000  # states that were read since the last one was saved


class New(NamedTuple):
    """A state to save: under an id, for an owner."""

    id: str
    owner: str
    model: str
    content: bytes
    tokens: int


class Saved(NamedTuple):
    """A state that was saved."""

    model: str
    tokens: int
    content: bytes


def is_state_id(name: str) -> bool:
    return _ID.fullmatch(name) is not None


def new_id() -> str:
    return f"state-{secrets.token_hex(12)}"


class StateStore:
    """Bounded by number, in memory also by bytes: the least recently used goes. Any thread may call its methods."""

    def __init__(
        self,
        *,
        most: int,
        most_bytes: int,
        folder: Path | None = None,
        check: Mapping[str, Callable[[bytes], int]],
    ) -> None:
        """`check` refuses content that is not a state of a model, and says how many tokens it has read."""
        self._most, self._check = most, check
        self._most_bytes = most_bytes if folder is None else None
        self._writing = threading.RLock()
        self._last_use = 0
        self._touched: dict[bytes, int] = {}  # keys that were read, with the time: written with the next state
        if folder is None:
            self._db = self._reader = _connected(":memory:", most_bytes)
            self._reading = self._writing
        else:
            make_folder(folder)
            path = folder / _FILE
            for each in (path, *(Path(f"{path}{end}") for end in _BESIDE)):
                if each.is_symlink() or (each.exists() and not is_plain(each)):
                    raise UserError(f"{str(each)!r} is not a plain file", fix="name another folder for the states")
            # (Whoever reads does not wait for the disk that a writer waits for.)
            self._db, self._reader = (_connected(str(path), most_bytes) for _ in range(2))
            self._reading = threading.RLock()
        try:
            (totals,) = self._ask("SELECT count(*), coalesce(sum(bytes), 0), coalesce(min(bytes), 0) FROM states")
            if not all(isinstance(number, int) and number >= 0 for number in totals):
                raise Refused("failed", "the saved states cannot be read: their sizes are not numbers")
        except Refused as error:
            self.close()
            raise UserError(f"{error} (in {str(folder)!r})", fix="name another folder for the states") from None
        self._count, self.held_bytes = int(totals[0]), int(totals[1])

    def __len__(self) -> int:
        return self._count

    def close(self) -> None:
        with self._writing, self._reading:
            self._reader.close()
            self._db.close()

    def rest(self) -> None:
        """Nothing is to be done for a while: give back the pages that are held."""
        for lock, db in ((self._writing, self._db), (self._reading, self._reader)):
            with lock, suppress(sqlite3.Error):
                db.execute("PRAGMA shrink_memory")

    def put(self, name: str, owner: str, model: str, content: bytes, tokens: int) -> dict[str, Any]:
        """Save under an id, over what it named before; on disk before this returns."""
        return self.put_all([New(name, owner, model, content, tokens)])[0]

    def put_all(self, states: Sequence[New]) -> Sequence[dict[str, Any]]:
        """Save several with one wait for the disk: all of them or none."""
        for state in states:
            if not is_state_id(state.id):
                raise Refused("invalid", f"{state.id!r} is not a valid id for a state", param="id")
        now = int(time.time())
        with self._transaction():
            for state in states:
                key = _key(state.id, state.owner)
                self._remove("key = ?", key)
                digest = hashlib.sha256(state.content).digest()
                about = (state.id, state.model, state.tokens, len(state.content), now)
                added = self._db.execute(
                    f"INSERT INTO states (key, owner, {_ABOUT}, used, sha256) VALUES ({'?, ' * 8}?)",
                    (key, state.owner, *about, self._time(), digest),
                )
                self._db.execute("INSERT INTO contents VALUES (?, ?)", (added.lastrowid, state.content))
                self._count += 1
                self.held_bytes += len(state.content)
            self._keep_bounds()
        return [_described(state.id, state.model, state.tokens, len(state.content), now) for state in states]

    def get(self, name: str, owner: str) -> Saved:
        key = _key(name, owner)
        asked = "SELECT model, tokens, content, sha256 FROM states JOIN contents USING (number) WHERE key = ?"
        rows = self._ask(asked, key)
        if not rows:
            raise _missing(name)
        model, tokens, content, digest = rows[0]
        whole = isinstance(content, bytes) and hashlib.sha256(content).digest() == digest
        if not (whole and isinstance(model, str) and isinstance(tokens, int)):
            self.delete(name, owner)
            raise Refused("not_found", f"the saved state {name!r} is damaged", param="state")
        with self._reading:
            self._touched[key] = self._time()
            many = len(self._touched) > _MOST_TOUCHED
        if many:  # nothing was saved for long
            with self._transaction():
                self._keep_bounds()
        return Saved(model, tokens, content)

    def describe(self, name: str, owner: str) -> dict[str, Any]:
        rows = self._ask(f"SELECT {_SHOWN} FROM states WHERE key = ?", _key(name, owner))
        if not rows:
            raise _missing(name)
        return _described(*rows[0])

    def list(self, owner: str, *, limit: int = -1, after: str | None = None) -> list[dict[str, Any]]:
        """The least recently used first; those after an id, if one is given."""
        begin = 0
        if after is not None:
            rows = self._ask("SELECT used FROM states WHERE key = ?", _key(after, owner))
            if not rows:
                raise _missing(after)
            begin = rows[0][0]
        asked = f"SELECT {_SHOWN} FROM states WHERE owner = ? AND used > ? ORDER BY used LIMIT ?"
        return [_described(*row) for row in self._ask(asked, owner, begin, limit)]

    def fork(self, name: str, owner: str, new: str | None) -> dict[str, Any]:
        """A second state with the same content, to be continued on its own."""
        saved = self.get(name, owner)
        return self.put(new or new_id(), owner, saved.model, saved.content, saved.tokens)

    def delete(self, name: str, owner: str) -> None:
        with self._transaction():
            if not self._remove("key = ?", _key(name, owner)):
                raise _missing(name)

    def import_(self, model: str, content: bytes, owner: str, new: str | None) -> dict[str, Any]:
        """Save what another server exported, or `statewise generate --save-state` wrote; refused if it does not fit."""
        if model not in self._check:
            raise Refused("not_found", f"no model {model!r} is served whose states can be saved", param="model")
        try:
            tokens = self._check[model](content)
        except UserError as error:
            raise Refused("invalid", f"not a state of {model!r}: {error.what}", param="state") from None
        return self.put(new or new_id(), owner, model, content, tokens)

    def _keep_bounds(self) -> None:
        with self._reading:
            touched, self._touched = self._touched, {}
        self._db.executemany("UPDATE states SET used = ? WHERE key = ?", [(at, key) for key, at in touched.items()])
        oldest = "key IN (SELECT key FROM states ORDER BY used LIMIT ?)"
        if self._count > self._most:
            self._remove(oldest, self._count - self._most)
        while self._most_bytes is not None and self.held_bytes > self._most_bytes and self._count > 1:
            self._remove(oldest, 1)

    def _remove(self, which: str, *values: Any) -> int:
        removed = self._db.execute(f"SELECT number, bytes FROM states WHERE {which}", values).fetchall()
        for number, size in removed:
            self._db.execute("DELETE FROM states WHERE number = ?", (number,))
            self._db.execute("DELETE FROM contents WHERE number = ?", (number,))
            self.held_bytes -= size
        self._count -= len(removed)
        return len(removed)

    def _time(self) -> int:
        """Of a use; no two are the same."""
        with self._reading:
            self._last_use = max(time.time_ns(), self._last_use + 1)
            return self._last_use

    def _ask(self, query: str, *values: Any) -> Sequence[Any]:
        with self._reading, _refusing():
            return self._reader.execute(query, values).fetchall()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """All of it or nothing, and on disk at the end."""
        with self._writing, _refusing():
            before = self._count, self.held_bytes
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                self._count, self.held_bytes = before
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise


def _connected(path: str, cache_bytes: int) -> sqlite3.Connection:
    try:
        db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        db.execute("PRAGMA trusted_schema = OFF")
        db.execute(f"PRAGMA page_size = {_PAGE}")
        db.execute(f"PRAGMA cache_size = -{min(cache_bytes, _CACHE) >> 10}")
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version not in (0, _FORMAT):
            raise sqlite3.DatabaseError(f"format {version}, expected {_FORMAT}")
        db.executescript(f"{_TABLES} PRAGMA user_version = {_FORMAT};")
        with closing(sqlite3.connect(":memory:")) as empty:
            empty.executescript(_TABLES)
            if _schema(db) != _schema(empty):  # a trigger or a view of somebody else would run for ever
                raise sqlite3.DatabaseError("its tables are not those of saved states")
        return db
    except sqlite3.Error as error:
        raise UserError(f"cannot open the saved states in {path!r}: {error}", fix="name another folder") from None


def _schema(db: sqlite3.Connection) -> list[tuple[str, ...]]:
    tables = db.execute("SELECT type, name, sql FROM sqlite_master ORDER BY type, name LIMIT 100").fetchall()
    return [tuple(" ".join(str(word).split()) for word in row) for row in tables]


@contextmanager
def _refusing() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise Refused("failed", f"the saved states cannot be read or written: {error}") from error


def _key(name: str, owner: str) -> bytes:
    return hashlib.sha256(json.dumps([owner, name]).encode()).digest()[:20]


def _missing(name: str) -> Refused:
    return Refused("not_found", f"there is no saved state {name!r}", param="state", code="state_not_found")


def _described(id: str, model: str, tokens: int, size: int, created: int) -> dict[str, Any]:
    return {"id": id, "object": "state", "model": model, "tokens": tokens, "bytes": size, "created": created}
