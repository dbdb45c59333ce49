"""How far a command is, on standard error: redrawn on a terminal; elsewhere a plain line at most every 10 seconds."""

import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sized
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from itertools import count
from typing import Protocol, TypeVar

from statewise.display.number import size
from statewise.display.terminal import make_console

_SECONDS_BETWEEN_LINES = 10.0  # where nothing can be redrawn
_SECONDS_BEFORE = 2.0  # before anything is shown of a loop: most are over by then
_SECONDS_BETWEEN_DRAWINGS = 0.1
_SECONDS_BETWEEN_TICKS = 1.0

T = TypeVar("T")


def time_left(seconds: float) -> str:
    return f"{int(seconds // 60)}:{int(seconds % 60):02d} left"


class Status:
    """A console on standard error. `redraws`: it is a terminal; otherwise no control characters are written."""

    def __init__(self) -> None:
        self.console = make_console(stderr=True)
        self.redraws = self.console.is_terminal and sys.stderr.isatty()
        self._last_line = time.monotonic()

    def say(self, text: str) -> None:
        self.console.say(text)

    def line_is_due(self) -> bool:
        """Whether a plain line may be written now, because the last one is old enough."""
        now = time.monotonic()
        if now - self._last_line < _SECONDS_BETWEEN_LINES:
            return False
        self._last_line = now
        return True


class Progress(Protocol):
    def over(self, items: Iterable[T], what: str, *, total: int | None = None) -> Generator[T, None, None]:
        """The same items; shows how many are done."""
        ...

    def busy(self, what: str) -> AbstractContextManager[None]:
        """Around work that cannot say how far it is: shows that it goes on."""
        ...


class SilentProgress:
    """For `--quiet`, `--json` and libraries."""

    def over(self, items: Iterable[T], what: str, *, total: int | None = None) -> Generator[T, None, None]:
        yield from items

    def busy(self, what: str) -> AbstractContextManager[None]:
        return nullcontext()


class ShownProgress:
    """On a terminal one line, redrawn and wiped; elsewhere a line now and then."""

    def __init__(self) -> None:
        self._status = Status()
        self._lock = threading.Lock()  # `busy` writes from a thread of its own
        self._written_at = 0.0

    def over(self, items: Iterable[T], what: str, *, total: int | None = None) -> Generator[T, None, None]:
        total = len(items) if total is None and isinstance(items, Sized) else total
        every = _SECONDS_BETWEEN_DRAWINGS if self._status.redraws else _SECONDS_BETWEEN_LINES
        began = time.monotonic()
        last, drawn = began + _SECONDS_BEFORE - every, False
        try:
            for number, item in enumerate(items):
                now = time.monotonic()
                if number and now - began > _SECONDS_BEFORE and now - last >= every:
                    self._write(_line(what, number, total, now - began), now)
                    last, drawn = now, True
                yield item
        finally:
            if drawn and self._status.redraws:
                self._status.console.redraw()

    @contextmanager
    def busy(self, what: str) -> Iterator[None]:
        began, over = time.monotonic(), threading.Event()
        every = _SECONDS_BETWEEN_TICKS if self._status.redraws else _SECONDS_BETWEEN_LINES

        def report() -> None:
            pause = _SECONDS_BEFORE
            while not over.wait(pause):
                pause = _SECONDS_BETWEEN_TICKS
                now = time.monotonic()
                if now - self._written_at >= every:  # a loop inside that knows how far it is comes first
                    self._write(f"{what}: {int(now - began)} s so far", now)

        thread = threading.Thread(target=report, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            if self._status.redraws:
                self._status.console.redraw()

    def _write(self, line: str, now: float) -> None:
        with self._lock:
            self._written_at = now
            if self._status.redraws:
                self._status.console.redraw(line)
            else:
                self._status.say(line)


def _line(what: str, done: int, total: int | None, seconds: float) -> str:
    speed = f"{done / max(seconds, 1e-9):.3g} a second"
    if not total:
        return f"{what}: {done:,}, {speed}"
    return f"{what}: {done:,} of {total:,}, {speed}, about {time_left(seconds / done * (total - done))}"


def make_progress(*, quiet: bool = False) -> Progress:
    return SilentProgress() if quiet else ShownProgress()


@contextmanager
def ticking(progress: Progress, what: str) -> Iterator[Callable[[], None]]:
    """For a job that reports each bit of work, but not how much there is: call the result once for each bit."""
    ticks = progress.over(count(), what)

    def tick() -> None:
        next(ticks)

    with closing(ticks):  # wipes a line that was being redrawn
        yield tick


def make_amounts(*, quiet: bool = False) -> Callable[[str, int, int], None] | None:
    """For a job that says what it reads, how many bytes are done, and of how many: megabytes, speed and time left."""
    return None if quiet else _Amounts()


class _Amounts:
    def __init__(self) -> None:
        self._status = Status()
        self._what, self._began, self._first, self._drawn = "", 0.0, 0, 0.0

    def __call__(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        if what != self._what:
            self._what, self._began, self._first = what, now, done
        speed = (done - self._first) / max(now - self._began, 1e-9)
        rate = f", {size(speed)}/s, about {time_left((total - done) / speed)}" if speed else ""
        line = f"{what}: {size(done)} of {size(total)}{rate}"
        if not self._status.redraws:
            if self._status.line_is_due():
                self._status.say(line)
        elif done == total:
            self._status.console.redraw()
        elif now - self._drawn >= _SECONDS_BETWEEN_DRAWINGS:
            self._drawn = now
            self._status.console.redraw(line)
