"""A cache of folders on disk: each entry is complete or absent, and verified by sha256 before use."""

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from statewise.data.source import file_sha256
from statewise.specs import UserError, from_json, read_small

_MANIFEST = "manifest.json"
_UNFINISHED = "unfinished-"
_ABANDONED_SECONDS = 24 * 3600
_ATTEMPTS = 3

Facts = dict[str, Any]


def default_folder() -> Path:
    """`$XDG_CACHE_HOME/statewise`, or `~/.cache/statewise`."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "statewise"


def open_entry(key: str, *, folder: Path, make: Callable[[Path], Facts]) -> tuple[Path, Facts]:
    """The entry's folder and facts; `make` fills a new folder if there is no valid one."""
    entry = folder / key
    facts = _verified(entry)
    if facts is not None:
        return entry, facts
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _sweep(folder)
        with tempfile.TemporaryDirectory(prefix=_UNFINISHED, dir=folder) as unfinished:
            made = Path(unfinished, "made")
            made.mkdir()
            facts = make(made)
            _seal(made, facts)
            _put(made, entry)
    except OSError as error:
        raise UserError(
            f"the cache folder {str(folder)!r} cannot be written: {error.strerror or error}",
            fix="make room there, or set XDG_CACHE_HOME to another folder",
        ) from None
    return entry, facts


def _seal(folder: Path, facts: Facts) -> None:
    content = {"facts": facts, "files": {file.name: file_sha256(file) for file in folder.iterdir()}}
    (folder / _MANIFEST).write_text(json.dumps({"content": content, "sha256": _digest(content)}))


def _verified(entry: Path) -> Facts | None:
    """The facts of an entry whose files are unchanged, else None."""
    try:
        manifest = from_json(read_small(entry / _MANIFEST))
        content = manifest["content"]
        if manifest["sha256"] != _digest(content):
            return None
        if any(file_sha256(entry / name) != sha256 for name, sha256 in content["files"].items()):
            return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    facts: Facts = content["facts"]
    return facts


def _put(made: Path, entry: Path) -> None:
    """Rename to the entry's name, unless another process did; a damaged entry is moved into our temporary folder."""
    for attempt in range(_ATTEMPTS):
        try:
            made.rename(entry)
            return
        except OSError:
            if _verified(entry) is not None:
                return
            if attempt == _ATTEMPTS - 1:
                raise
        with suppress(FileNotFoundError):
            entry.rename(made.with_name(f"damaged-{attempt}"))


def _sweep(folder: Path) -> None:
    """Remove folders of killed processes: those that nothing was written to for a day."""
    for unfinished in folder.glob(f"{_UNFINISHED}*"):
        with suppress(FileNotFoundError):  # Its owner has just finished.
            touched = max(file.stat().st_mtime for file in (unfinished, *unfinished.rglob("*")))
            if time.time() - touched > _ABANDONED_SECONDS:
                shutil.rmtree(unfinished, ignore_errors=True)


def _digest(content: Facts) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
