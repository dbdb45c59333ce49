"""Numbers that a device has been asked for, read once they are there: in order, and some steps late.

Reading a number at once would let the device run dry: it has nothing to do until the host has asked for the next step.
So a copy into pinned memory is queued behind the step, and looked at when an event says that it is done.
"""

import time
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

_MOST = 8  # steps that may be on their way at once
_SECONDS = 0.1  # for how long those may keep the device busy: so late may a signal or the end of a budget be noticed


class _Asked(NamedTuple):
    copy: Tensor
    done: torch.cuda.Event

    def is_done(self) -> bool:
        return bool(self.done.query())  # type: ignore[no-untyped-call]  # torch leaves it untyped


class Readings:
    """`put` asks, `due` hands out. What is on a CPU is there at once."""

    def __init__(self) -> None:
        self._here: deque[Tensor] = deque()
        self._asked: deque[_Asked] = deque()
        self._idle: list[_Asked] = []
        self._read_at: float | None = None  # None: nobody waited, so the time since the last reading says nothing
        self._pace = _SECONDS  # seconds from one reading to the next, lately

    def put(self, numbers: Tensor) -> None:
        if numbers.device.type != "cuda":
            self._here.append(numbers.clone())
            return
        copy, done = self._idle.pop() if self._idle else self._new(numbers)
        copy.copy_(numbers, non_blocking=True)
        done.record(torch.cuda.current_stream(numbers.device))
        self._asked.append(_Asked(copy, done))

    def due(self, *, all_of_them: bool = False) -> Iterator[list[float]]:
        """What is there. Waits only where more is on its way than should be, or for all of it."""
        while self._here:
            yield self._here.popleft().tolist()
        allowed = 0 if all_of_them else max(1, min(_MOST, int(_SECONDS / max(self._pace, 1e-9))))
        while self._asked and (len(self._asked) > allowed or self._asked[0].is_done()):
            asked = self._asked.popleft()
            asked.done.synchronize()
            now = time.monotonic()
            if self._read_at is not None:
                self._pace += (now - self._read_at - self._pace) / 2
            self._read_at = now if self._asked else None
            self._idle.append(asked)
            yield asked.copy.tolist()

    @staticmethod
    def _new(numbers: Tensor) -> _Asked:
        done = torch.cuda.Event()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        return _Asked(torch.empty(numbers.shape, dtype=numbers.dtype, pin_memory=True), done)
