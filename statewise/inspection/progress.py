"""Progress of a lens, shown when it takes more than a moment."""

import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sized
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from itertools import count
from typing import Protocol, TypeVar

from statewise.display import make_console

_QUIET = 2.0  # seconds before anything is shown
_LINE = 10.0  # seconds between two lines where a line cannot be redrawn
_REDRAW = 0.1
_SECOND = 1.0

T = TypeVar("T")


class Progress(Protocol):
    def over(self, items: Iterable[T], what: str, *, total: int | None = None) -> Generator[T, None, None]:
        """The same items, with a progress display."""
        ...

    def busy(self, what: str) -> AbstractContextManager[None]:
        """Around a job of unknown length: show that it is still running."""
        ...


class Silent:
    """For `--quiet`, `--json` and libraries."""

    def over(self, items: Iterable[T], what: str, *, total: int | None = None) -> Generator[T, None, None]:
        yield from items

    def busy(self, what: str) -> AbstractContextManager[None]:
        return nullcontext()


class Shown:
    """On a terminal one line, redrawn and wiped; elsewhere a line now and then."""

    def __init__(self) -> None:
        self._console = make_console(stderr=True)
        self._redraws = self._console.is_terminal and sys.stderr.isatty()
        self._lock = threading.Lock()  # `busy` prints from a thread of its own
        self._said = 0.0  # time of the last print

    def over(self, items: Iterable[T], what: str, *, total: int | None = None) -> Generator[T, None, None]:
        total = len(items) if total is None and isinstance(items, Sized) else total
        began = time.monotonic()
        last, drawn = began + _QUIET - (_REDRAW if self._redraws else _LINE), False
        try:
            for number, item in enumerate(items):
                now = time.monotonic()
                if number and now - began > _QUIET and now - last >= (_REDRAW if self._redraws else _LINE):
                    self._say(_line(what, number, total, now - began), now)
                    last, drawn = now, True
                yield item
        finally:
            if drawn and self._redraws:
                self._console.redraw()

    @contextmanager
    def busy(self, what: str) -> Iterator[None]:
        began, over = time.monotonic(), threading.Event()
        every = _SECOND if self._redraws else _LINE

        def tell() -> None:
            pause = _QUIET
            while not over.wait(pause):
                pause = _SECOND
                now = time.monotonic()
                if now - self._said >= every:  # a display of `over` has precedence
                    self._say(f"{what}: {int(now - began)} s so far", now)

        thread = threading.Thread(target=tell, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            if self._redraws:
                self._console.redraw()

    def _say(self, line: str, now: float) -> None:
        with self._lock:
            self._said = now
            if self._redraws:
                self._console.redraw(line)
            else:
                self._console.print(line, highlight=False, markup=False, soft_wrap=True)


def _line(what: str, done: int, total: int | None, seconds: float) -> str:
    speed = f"{done / max(seconds, 1e-9):.3g} a second"
    if not total:
        return f"{what}: {done:,}, {speed}"
    left = seconds / done * (total - done)
    return f"{what}: {done:,} of {total:,}, {speed}, about {int(left // 60)}:{int(left % 60):02d} left"


def make_progress(*, quiet: bool = False) -> Progress:
    return Silent() if quiet else Shown()


@contextmanager
def ticking(progress: Progress, what: str) -> Iterator[Callable[[], None]]:
    """For a job of unknown length that reports each step."""
    beats = progress.over(count(), what)

    def tick() -> None:
        next(beats)

    with closing(beats):  # clears a line that was being redrawn
        yield tick
