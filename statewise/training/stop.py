"""How a run ends early: by a number that is not finite, or by a signal, after which the step in progress is saved."""

import signal
import threading
from types import FrameType
from typing import Any


class NonFinite(RuntimeError):
    """The loss, a gradient or a weight is not finite. Raised before it reaches an update or a checkpoint."""

    def __init__(self, step: int, what: str, *, kept_from: str = "the weights were not updated") -> None:
        super().__init__(f"{what} is not finite at step {step}; {kept_from}")
        self.step = step
        self.what = what


class Stopped(Exception):
    """A signal ended the run; what was done is saved."""

    def __init__(self, signal_number: int, step: int) -> None:
        super().__init__(f"stopped by signal {signal_number} after step {step}")
        self.signal_number = signal_number
        self.step = step

    @property
    def exit_code(self) -> int:
        return 128 + self.signal_number


class Signals:
    """Inside `with Signals() as signals`, `signals.received` is the number of the first SIGTERM or SIGINT, or 0.

    A second signal ends the process at once.
    """

    WATCHED = (signal.SIGTERM, signal.SIGINT)

    def __init__(self) -> None:
        self.received = 0
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> "Signals":
        if threading.current_thread() is threading.main_thread():
            for number in self.WATCHED:
                self._previous[number] = signal.signal(number, self._receive)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous.clear()

    def _receive(self, number: int, _: FrameType | None) -> None:
        if self.received:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        self.received = number
