"""Saved states by id: a conversation is a file of a few kilobytes that anybody with the same weights can continue.

A saved state is the content of the file that `statewise generate --save-state` writes. It is kept in memory; with a
folder it is also written there before it counts as saved, so that it survives the process. Ids come from requests:
they name a file by their hash and are never part of a path.
"""

import hashlib
import json
import re
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from statewise.disk import write
from statewise.serving.job import Refused
from statewise.specs import UserError, from_json

_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,127}")
_HEAD = b"statewise state 1\n"  # of a file in the folder; then a line of JSON, then what was saved
_LONGEST_LINE = 4096


@dataclass(frozen=True, slots=True)
class Saved:
    """What is known of a saved state without reading it."""

    id: str
    owner: str
    model: str
    tokens: int
    bytes: int
    created: int
    sha256: str


def is_state_id(name: str) -> bool:
    return _ID.fullmatch(name) is not None


def new_id() -> str:
    return f"state-{secrets.token_hex(12)}"


class StateStore:
    """Bounded by number and bytes: the least recently used state goes. Its methods may be called from any thread."""

    def __init__(
        self,
        *,
        most: int,
        most_bytes: int,
        folder: Path | None = None,
        check: Mapping[str, Callable[[bytes], int]],
    ) -> None:
        """`check` refuses content that is not a state of a model, and says how many tokens it has read."""
        self._most, self._most_bytes, self._folder, self._check = most, most_bytes, folder, check
        self._known: OrderedDict[str, Saved] = OrderedDict()
        self._held: OrderedDict[str, bytes] = OrderedDict()
        self._lock = threading.RLock()
        self.held_bytes = 0
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            self._scan(folder)

    def __len__(self) -> int:
        return len(self._known)

    def put(self, name: str, owner: str, model: str, content: bytes, tokens: int) -> dict[str, Any]:
        """Save under an id, over what it named before; on disk before this returns."""
        if not is_state_id(name):
            raise Refused("invalid", f"{name!r} is not a valid id for a state", param="id")
        key = _key(name, owner)
        digest = hashlib.sha256(content).hexdigest()
        saved = Saved(name, owner, model, tokens, len(content), int(time.time()), digest)
        if self._folder is not None:
            line = json.dumps(asdict(saved)).encode()
            write(self._folder / key, _HEAD + line + b"\n" + content)
        with self._lock:
            self._known[key] = saved
            self._known.move_to_end(key)
            self._hold(key, content)
            while len(self._known) > self._most:
                self._drop(next(iter(self._known)))
        return _described(saved)

    def get(self, name: str, owner: str) -> tuple[Saved, bytes]:
        key = _key(name, owner)
        with self._lock:
            saved = self._known.get(key)
            if saved is None:
                raise _missing(name)
            self._known.move_to_end(key)
            content = self._held.get(key)
            if content is None:
                assert self._folder is not None
                content = _read(self._folder / key)[1]
                if content is None or hashlib.sha256(content).hexdigest() != saved.sha256:
                    self._drop(key)
                    raise Refused("not_found", f"the saved state {name!r} is damaged", param="state")
                self._hold(key, content)
        return saved, content

    def has(self, name: str, owner: str) -> bool:
        return _key(name, owner) in self._known

    def describe(self, name: str, owner: str) -> dict[str, Any]:
        saved = self._known.get(_key(name, owner))
        if saved is None:
            raise _missing(name)
        return _described(saved)

    def list(self, owner: str) -> list[dict[str, Any]]:
        """Newest last."""
        with self._lock:
            return [_described(saved) for saved in self._known.values() if saved.owner == owner]

    def fork(self, name: str, owner: str, new: str | None) -> dict[str, Any]:
        """A second state with the same content, to be continued on its own."""
        saved, content = self.get(name, owner)
        return self.put(new or new_id(), owner, saved.model, content, saved.tokens)

    def delete(self, name: str, owner: str) -> None:
        with self._lock:
            if (key := _key(name, owner)) not in self._known:
                raise _missing(name)
            self._drop(key)

    def export(self, name: str, owner: str) -> bytes:
        return self.get(name, owner)[1]

    def import_(self, model: str, content: bytes, owner: str, new: str | None) -> dict[str, Any]:
        """Save what another server exported, or `statewise generate --save-state` wrote; refused if it does not fit."""
        if model not in self._check:
            raise Refused("not_found", f"no model {model!r} is served whose states can be saved", param="model")
        try:
            tokens = self._check[model](content)
        except UserError as error:
            raise Refused("invalid", f"not a state of {model!r}: {error.what}", param="state") from None
        return self.put(new or new_id(), owner, model, content, tokens)

    def _hold(self, key: str, content: bytes) -> None:
        self.held_bytes += len(content) - len(self._held.pop(key, b""))
        self._held[key] = content
        while self.held_bytes > self._most_bytes and len(self._held) > 1:
            oldest = next(iter(self._held))
            if self._folder is None:
                self._drop(oldest)
            else:
                self.held_bytes -= len(self._held.pop(oldest))

    def _drop(self, key: str) -> None:
        self._known.pop(key, None)
        self.held_bytes -= len(self._held.pop(key, b""))
        if self._folder is not None:
            (self._folder / key).unlink(missing_ok=True)

    def _scan(self, folder: Path) -> None:
        """What an earlier process saved. A file that is not ours, or not whole, is left alone."""
        found = []
        for path in folder.iterdir():
            if re.fullmatch(r"[0-9a-f]{40}", path.name) and path.is_file() and not path.is_symlink():
                saved = _read(path, whole=False)[0]
                if saved is not None and _key(saved.id, saved.owner) == path.name:
                    found.append((path.name, saved))
        self._known.update(sorted(found, key=lambda item: item[1].created))


def _key(name: str, owner: str) -> str:
    return hashlib.sha256(json.dumps([owner, name]).encode()).hexdigest()[:40]


def _missing(name: str) -> Refused:
    return Refused("not_found", f"there is no saved state {name!r}", param="state", code="state_not_found")


def _described(saved: Saved) -> dict[str, Any]:
    return {
        "id": saved.id,
        "object": "state",
        "model": saved.model,
        "tokens": saved.tokens,
        "bytes": saved.bytes,
        "created": saved.created,
    }


def _read(path: Path, *, whole: bool = True) -> tuple[Saved | None, bytes | None]:
    """The line about a state, and its content; None where the file is not one of ours."""
    try:
        with path.open("rb") as file:
            if file.readline(len(_HEAD)) != _HEAD:
                return None, None
            saved = Saved(**from_json(file.readline(_LONGEST_LINE)))
            return saved, file.read() if whole else None
    except (OSError, ValueError, TypeError):
        return None, None
