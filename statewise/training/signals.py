"""SIGTERM and SIGINT ask for a clean end: the step in progress is finished and saved."""

import signal
import threading
from types import FrameType
from typing import Any


class Signals:
    """Inside `with Signals() as signals`, `signals.received` is the first signal's number, or 0.

    A second signal of the same kind is not held back: who insists gets out at once.
    """

    WATCHED = (signal.SIGTERM, signal.SIGINT)

    def __init__(self) -> None:
        self.received = 0
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> "Signals":
        if threading.current_thread() is threading.main_thread():
            for number in self.WATCHED:
                self._previous[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous.clear()

    def _note(self, number: int, _: FrameType | None) -> None:
        if self.received:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        self.received = number
