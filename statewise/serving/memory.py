"""The memory of a process that answers for months: what it no longer uses goes back to the system.

Three things let the resident memory of a server creep up although no object stays behind (`benchmarks/serve_soak.py`):

- glibc keeps freed blocks for the next request. Saved states and prompts have all sizes, so used blocks lie between
  free ones, and new blocks do not fit into the gaps. `trim` gives whole free pages back, wherever they lie.
- Python looks for unreachable cycles among all objects only when a quarter of them are new. Beside those of a loaded
  model and its libraries that is the garbage of a thousand requests. `settle` takes what is there after loading out of
  this account.
- The lists of a pool have room for as many texts, of as many tokens, as there ever were at once, and a page of it is
  resident from its first use on. An idle engine gives it back.
"""

import ctypes
import gc
import time
from collections.abc import Callable
from typing import Any

_ARENA_MAX = -8  # of glibc's mallopt
_BUSY = 10.0  # seconds between two trims of an engine that is never idle
_IDLE = 1.5  # seconds without work after which an engine counts as idle


def _of_libc(name: str) -> "Callable[..., Any] | None":
    """A function of the C library; None where there is none of that name (macOS, musl)."""
    try:
        function: Callable[..., Any] = getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError, TypeError):
        return None
    return function


_mallopt, _malloc_trim = _of_libc("mallopt"), _of_libc("malloc_trim")


def prepare() -> None:
    """Before threads begin: all of them share the free blocks of one arena."""
    if _mallopt is not None:
        _mallopt(_ARENA_MAX, 1)


def settle() -> None:
    """When all runs are loaded: what is there now stays to the end."""
    gc.collect()
    gc.freeze()
    trim()


def trim() -> None:
    """Give free pages back. It takes milliseconds, without the lock of Python's interpreter."""
    if _malloc_trim is not None:
        _malloc_trim(0)


class Housekeeping:
    """Decides when the thread of an engine gives memory back: once it is idle, and now and then if it never is."""

    def __init__(self) -> None:
        self._worked = self._trimmed = time.monotonic()
        self._rested = True

    def after_turn(self, *, busy: bool) -> bool:
        """True once after each piece of work, when the engine has been idle for a while: then `tidy` is due."""
        now = time.monotonic()
        if busy:
            self._worked, self._rested = now, False
            if now - self._trimmed >= _BUSY:
                self._trimmed = now
                trim()
            return False
        if self._rested or now - self._worked < _IDLE:
            return False
        self._rested, self._trimmed = True, now
        return True


def tidy() -> None:
    gc.collect()  # quick: what was loaded is left out
    trim()
