"""The memory of a process that answers for months: what it no longer uses goes back to the system.

Four things let the resident memory of a server creep up although no object stays behind (`benchmarks/serve_soak.py`):

- glibc keeps freed blocks for the next request. Saved states and prompts have all sizes, so used blocks lie between
  free ones, and new blocks do not fit into the gaps. `trim` gives whole free pages back, wherever they lie.
- Python looks for unreachable cycles among all objects only when a quarter of them are new. Beside those of a loaded
  model and its libraries that is the garbage of a thousand requests. `settle` takes what is there after loading out of
  this account.
- The lists of a pool have room for as many texts, of as many tokens, as there ever were at once, and a page of it is
  resident from its first use on. An idle engine gives it back.
- oneDNN keeps the code that it made for the last 1,024 shapes of input: 0.2 MB for an LSTM that reads so many prompts
  of such a length. To make it anew takes about a millisecond, so the command line lets it keep fewer.
"""

import ctypes
import gc
import time
from collections.abc import Callable
from typing import Any

_ARENA_MAX = -8  # of glibc's mallopt
_YOUNG = 50_000  # new objects after which Python looks for cycles among them
_BUSY = 10.0  # seconds between two trims of an engine that is never idle
_IDLE = 1.5  # seconds without work after which a server counts as idle
_LOOK = 0.25  # seconds between two looks at what the process computes
_STILL = 0.05  # of a core: a process that computes less has nothing to do


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
    gc.set_threshold(_YOUNG)  # a turn of thousands of streams makes that many
    trim()


def trim() -> None:
    """Give free pages back. It takes milliseconds, without the lock of Python's interpreter."""
    if _malloc_trim is not None:
        _malloc_trim(0)


class Housekeeping:
    """Decides when the thread of an engine gives memory back: once the server is idle, and now and then if it never is.

    An engine without work is not idle while the process computes: states are read and written, requests are answered.
    """

    def __init__(self) -> None:
        self._worked = self._trimmed = self._looked = time.monotonic()
        self._computed = time.process_time()
        self._rested = True

    def after_turn(self, *, busy: bool) -> bool:
        """True once after each piece of work, when the server has been idle for a while: then `tidy` is due."""
        now = time.monotonic()
        if busy or (now - self._looked >= _LOOK and self._computes(now)):
            self._worked, self._rested = now, False
            if now - self._trimmed >= _BUSY:
                self._trimmed = now
                trim()
            return False
        if self._rested or now - self._worked < _IDLE:
            return False
        self._rested, self._trimmed = True, now
        return True

    def _computes(self, now: float) -> bool:
        """Whether the process used its cores since the last look."""
        before, self._looked = self._looked, now
        computed, self._computed = self._computed, time.process_time()
        return self._computed - computed > _STILL * (now - before)


def tidy() -> None:
    gc.collect()  # quick: what was loaded is left out
    trim()
