"""How a run shows itself: one live line on a terminal, a plain line now and then elsewhere."""

import sys
import time
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from statewise.display import make_console
from statewise.training.progress_state import Extent

_SECONDS_BETWEEN_LINES = 10.0


class Display(Protocol):
    def start(self, at: Extent) -> None: ...
    def update(self, at: Extent, *, loss: float, tokens_per_second: float) -> None: ...
    def say(self, text: str) -> None: ...
    def stop(self) -> None: ...


class Silent:
    """For `--quiet`, for all ranks but the first, and for libraries."""

    def start(self, at: Extent) -> None: ...
    def update(self, at: Extent, *, loss: float, tokens_per_second: float) -> None: ...
    def say(self, text: str) -> None: ...
    def stop(self) -> None: ...


class Live:
    """A bar with the loss, tokens a second and the time left. A resumed run's bar starts where it resumed."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[numbers]}"),
            TimeRemainingColumn(elapsed_when_finished=True),
            console=console,
        )
        self._task: TaskID | None = None

    def start(self, at: Extent) -> None:
        self._task = self._progress.add_task("training", total=at.whole, numbers=str(at))
        self._progress.update(self._task, completed=at.done)
        self._progress.start()

    def update(self, at: Extent, *, loss: float, tokens_per_second: float) -> None:
        assert self._task is not None
        numbers = f"{at}  loss {loss:.3f}  {tokens_per_second:,.0f} tok/s"
        self._progress.update(self._task, completed=at.done, numbers=numbers)

    def say(self, text: str) -> None:
        self._progress.console.print(text, highlight=False, markup=False)

    def stop(self) -> None:
        self._progress.stop()


class Plain:
    """At most a line every few seconds, no control characters."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._last = self._began = time.monotonic()
        self._first = 0.0

    def start(self, at: Extent) -> None:
        self._first, self._began = at.done, time.monotonic()

    def update(self, at: Extent, *, loss: float, tokens_per_second: float) -> None:
        now = time.monotonic()
        if now - self._last < _SECONDS_BETWEEN_LINES:
            return
        self._last = now
        left = (now - self._began) / max(1e-9, at.done - self._first) * (at.whole - at.done)
        self.say(f"{at}  loss {loss:.3f}  {tokens_per_second:,.0f} tok/s  {int(left // 60)}:{int(left % 60):02d} left")

    def say(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def stop(self) -> None: ...


def make_display(*, quiet: bool = False) -> Display:
    if quiet:
        return Silent()
    console = make_console(stderr=True)
    return Live(console) if console.is_terminal and sys.stderr.isatty() else Plain(console)
