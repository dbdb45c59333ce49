"""The numbers that a step reports: checked on the device, copied to the host, and read some steps later.

Reading a number at once would leave the device idle: it has nothing to do until the host has launched the next step.
So a copy into pinned memory is queued behind the step, and read when an event says that it is done. An update that must
not be made is held back on the device itself.

P trained parameters.
"""

import math
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn

_MOST_IN_FLIGHT = 8  # steps that may be queued at once
_SECONDS_IN_FLIGHT = 0.1  # for which they may keep the device busy: how late a signal or a budget's end is noticed


class Guard:
    """Decides on the device whether an update is made. After a loss or gradient that is not finite, none is made.

    `stopped` is 0 or 1. Fused optimisers call it `found_inf`: at 1 they leave weights and their own state as they are.
    `report` holds the summed loss, the norm of the gradient, and that of each parameter's part. Every step overwrites
    it: copy it to keep it.
    """

    def __init__(self, model: nn.Module) -> None:
        trained = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        self.names = [name for name, _ in trained]
        self.parameters = [p for _, p in trained]
        self._zero = self.parameters[0].detach().new_zeros(())  # the norm of a gradient that nothing reached
        self.stopped = torch.zeros((), device=self._zero.device)
        self.report = self._zero.new_zeros(2 + len(trained))

    @torch.no_grad()
    def watch(self, total: Tensor) -> Tensor:
        """Check a summed loss and all gradients. Returns the norm of the gradients, before clipping."""
        reached = {p: p.grad for p in self.parameters if p.grad is not None}
        norm_of = dict(zip(reached, torch._foreach_norm(list(reached.values()))))
        norms_P = torch.stack([norm_of.get(p, self._zero) for p in self.parameters])
        norm: Tensor = torch.linalg.vector_norm(norms_P)
        self.report.copy_(torch.cat([torch.stack([total.to(norm), norm]), norms_P]))
        self.stopped.logical_or_((self.report[:2] * 0 != 0).any())  # 0 times infinity or NaN is NaN
        return norm

    def culprit(self, report: Sequence[float]) -> str | None:
        """What was not finite in a report: the loss before the gradients that follow from it."""
        total, _, *norms = report
        if not math.isfinite(total):
            return "the loss"
        broken = [name for name, norm in zip(self.names, norms) if not math.isfinite(norm)]
        return f"the gradient of {broken[0]}" if broken else None

    @contextmanager
    def closed(self) -> Iterator[None]:
        """Inside, steps change nothing."""
        before = self.stopped.clone()
        self.stopped.fill_(1)
        try:
            yield
        finally:
            self.stopped.copy_(before)


class Sent(NamedTuple):
    """A step whose numbers have not been read yet."""

    number: int
    rate: float
    scale: float
    tokens: int  # of the run so far
    seconds: float
    log: bool


class _Copy(NamedTuple):
    numbers: Tensor  # in pinned memory
    done: torch.cuda.Event

    def is_done(self) -> bool:
        return bool(self.done.query())  # type: ignore[no-untyped-call]  # torch leaves it untyped


class Readings:
    """`put` queues a copy, `due` yields the numbers in order. Numbers on a CPU are due at once."""

    def __init__(self) -> None:
        self._on_host: deque[Tensor] = deque()
        self._in_flight: deque[_Copy] = deque()
        self._free: list[_Copy] = []
        self._read_at: float | None = None  # None: nothing was in flight, so the time since then says nothing
        self._pace = _SECONDS_IN_FLIGHT  # recent seconds from one reading to the next

    def put(self, numbers: Tensor) -> None:
        if numbers.device.type != "cuda":
            self._on_host.append(numbers.clone())
            return
        copy, done = self._free.pop() if self._free else self._new(numbers)
        copy.copy_(numbers, non_blocking=True)
        done.record(torch.cuda.current_stream(numbers.device))
        self._in_flight.append(_Copy(copy, done))

    def due(self, *, all_of_them: bool = False) -> Iterator[list[float]]:
        """What has arrived. Waits only while too much is in flight, or for all of it."""
        while self._on_host:
            yield self._on_host.popleft().tolist()
        allowed = 0 if all_of_them else max(1, min(_MOST_IN_FLIGHT, int(_SECONDS_IN_FLIGHT / max(self._pace, 1e-9))))
        while self._in_flight and (len(self._in_flight) > allowed or self._in_flight[0].is_done()):
            copy = self._in_flight.popleft()
            copy.done.synchronize()
            now = time.monotonic()
            if self._read_at is not None:
                self._pace += (now - self._read_at - self._pace) / 2
            self._read_at = now if self._in_flight else None
            self._free.append(copy)
            yield copy.numbers.tolist()

    @staticmethod
    def _new(numbers: Tensor) -> _Copy:
        done = torch.cuda.Event()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        return _Copy(torch.empty(numbers.shape, dtype=numbers.dtype, pin_memory=True), done)
