"""How a run shows itself: a progress bar on a terminal, a plain line now and then elsewhere."""

import time
from typing import Protocol

from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from statewise.display import Status, time_left
from statewise.training.progress_state import Extent


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


class Bar:
    """A bar with the loss, tokens a second and the time left. A resumed run's bar starts where it resumed."""

    def __init__(self, status: Status) -> None:
        self._progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[numbers]}"),
            TimeRemainingColumn(elapsed_when_finished=True),
            console=status.console,
        )
        self._task: TaskID | None = None

    def start(self, at: Extent) -> None:
        self._task = self._progress.add_task("training", total=at.whole, numbers=str(at))
        self._progress.update(self._task, completed=at.done)
        self._progress.start()

    def update(self, at: Extent, *, loss: float, tokens_per_second: float) -> None:
        assert self._task is not None
        self._progress.update(self._task, completed=at.done, numbers=_numbers(at, loss, tokens_per_second))

    def say(self, text: str) -> None:
        self._progress.console.print(text, highlight=False, markup=False)

    def stop(self) -> None:
        self._progress.stop()


class Lines:
    """Plain lines, with the loss, tokens a second and the time left."""

    def __init__(self, status: Status) -> None:
        self._status = status
        self._began = time.monotonic()
        self._first = 0.0

    def start(self, at: Extent) -> None:
        self._first, self._began = at.done, time.monotonic()

    def update(self, at: Extent, *, loss: float, tokens_per_second: float) -> None:
        if self._status.line_is_due():
            left = (time.monotonic() - self._began) / max(1e-9, at.done - self._first) * (at.whole - at.done)
            self.say(f"{_numbers(at, loss, tokens_per_second)}  {time_left(left)}")

    def say(self, text: str) -> None:
        self._status.say(text)

    def stop(self) -> None: ...


def _numbers(at: Extent, loss: float, tokens_per_second: float) -> str:
    return f"{at}  loss {loss:.3f}  {tokens_per_second:,.0f} tok/s"


def make_display(*, quiet: bool = False) -> Display:
    if quiet:
        return Silent()
    status = Status()
    return Bar(status) if status.redraws else Lines(status)
