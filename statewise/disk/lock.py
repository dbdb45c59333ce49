"""One process per folder. The kernel releases the lock when the last process that holds it ends."""

import json
import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from statewise.disk.write import open_to_append
from statewise.specs import UserError, from_json, option

LOCK = ".lock"
_PATIENCE = 10.0  # seconds that the workers of a killed driver may take to notice


@contextmanager
def locked(folder: Path, *, patience: float = _PATIENCE, wait: bool = False) -> Iterator[int]:
    """Lock a run or a study. Workers may inherit the yielded handle, so that none of them outlives the lock.

    A process that is alive is not waited for, unless `wait` is set. A killed one leaves the file behind, but no lock.
    Systems and network file systems without such locks have none.
    """
    path = folder / LOCK
    handle = _acquire(path, time.monotonic() + patience, wait=wait)
    own = os.getpid()
    try:
        os.ftruncate(handle, 0)
        since = datetime.now(UTC).isoformat(timespec="seconds")
        os.pwrite(handle, json.dumps({"pid": own, "host": platform.node(), "since": since}).encode(), 0)
        yield handle
    finally:
        with suppress(OSError):  # a disk that became read-only
            if os.getpid() == own:  # not a forked child
                path.unlink(missing_ok=True)
        os.close(handle)


def was_locked(folder: Path) -> bool:
    """Whether a process works in the folder, or was killed there."""
    try:
        handle = os.open(folder / LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    holder = _holder(handle)
    os.close(handle)
    return bool(_described(holder))


def _acquire(path: Path, until: float, *, wait: bool) -> int:
    while True:
        handle = open_to_append(path, flags=os.O_RDWR)
        got = _lock(handle)
        if got and _is_still(handle, path):
            return handle
        holder = _holder(handle)
        os.close(handle)
        if got:
            continue
        if (_alive(holder) and not wait) or time.monotonic() >= until:
            raise UserError(
                f"another process is at work in {str(path.parent)!r}{_described(holder)}",
                fix=f"wait for it to end, or choose another folder: {option('out', 'DIR')}",
            )
        time.sleep(0.05)


def _lock(handle: int) -> bool:
    try:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):
        pass
    return True


def _is_still(handle: int, path: Path) -> bool:
    """The previous holder removes its file: a lock on a removed file locks nothing."""
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path, follow_symlinks=False))
    except FileNotFoundError:
        return False


def _holder(handle: int) -> dict[str, object]:
    try:
        holder = from_json(os.pread(handle, 4096, 0))
    except (OSError, ValueError):
        return {}
    return holder if isinstance(holder, dict) else {}


def _described(holder: dict[str, object]) -> str:
    if not {"pid", "host", "since"} <= holder.keys():
        return ""
    return f": process {holder['pid']} on {holder['host']}, since {holder['since']}"


def _alive(holder: dict[str, object]) -> bool:
    """Whether the holder itself is alive, so that waiting does not help."""
    pid = holder.get("pid")
    if not isinstance(pid, int) or holder.get("host") != platform.node():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True
