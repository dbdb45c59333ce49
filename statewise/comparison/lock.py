"""One driver a study. The kernel holds the lock and lets go of it when the last process that has it is gone."""

import fcntl
import json
import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from statewise.specs import UserError, from_json, option, read_small

_PATIENCE = 10.0  # seconds that the workers of a driver that was just killed may take to notice


@contextmanager
def locked(folder: Path, *, patience: float = _PATIENCE, wait: bool = False) -> Iterator[int]:
    """Hold the study's folder. What is yielded is inherited by the workers, so that none of them outlives the lock.

    Another driver that is alive is not waited for, unless `wait` says so. One that was killed leaves no lock behind:
    the file stays, but it is not the file that locks.
    """
    path = folder / ".lock"
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        _take(handle, path, patience, wait=wait)
        os.ftruncate(handle, 0)
        os.pwrite(handle, json.dumps({"pid": os.getpid(), "host": platform.node()}).encode(), 0)
        yield handle
    finally:
        os.close(handle)


def _take(handle: int, path: Path, patience: float, *, wait: bool) -> None:
    until = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if (_alive(holder := _holder(path)) and not wait) or time.monotonic() >= until:
                raise UserError(
                    f"{str(path.parent)!r} is being run by another process{_described(holder)}",
                    fix=f"wait for it to end, or choose another folder: {option('out', 'DIR')}",
                ) from None
        time.sleep(0.05)


def _holder(path: Path) -> dict[str, object]:
    try:
        found = from_json(read_small(path))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _described(holder: dict[str, object]) -> str:
    return f" ({holder['pid']} on {holder['host']})" if {"pid", "host"} <= holder.keys() else ""


def _alive(holder: dict[str, object]) -> bool:
    """Whether waiting is in vain: the driver itself is there, not only what it left."""
    pid = holder.get("pid")
    if not isinstance(pid, int) or holder.get("host") != platform.node():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return pid != os.getpid()
