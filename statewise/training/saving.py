"""Checkpoints that a thread writes while steps go on, from copies in the host's memory.

A checkpoint in parts has two phases: every process writes its part; when all have, the leader moves the parts, writes
the rest, and the manifest last. Whether all have is agreed with what processes agree on after each step anyway.
"""

from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

from torch import Tensor

from statewise.core import State, map_state
from statewise.training.folder import RunFolder, make_room, write_part
from statewise.training.parallel import Kept, Parallel

Write = Callable[[], None]


class Writes:
    """What is being written. Not in the `background`: each write is made at once, by the caller."""

    def __init__(self, par: Parallel, *, background: bool) -> None:
        self.par, self.background = par, background
        self._pool: ThreadPoolExecutor | None = None
        self._begun: deque[Future[None]] = deque()
        self._then: list[Write] = []

    def begin(self, write: Write) -> None:
        if not self.background:
            write()
            return
        self._pool = self._pool or ThreadPoolExecutor(1, "saving")
        self._begun.append(self._pool.submit(write))

    def begin_part(self, write: Write, *, then: Write) -> None:
        """`then` follows when all processes have made their `write`."""
        if not self.background:
            self.par.together(write)
            then()
            return
        self._then = [then]
        self.begin(write)

    def follow(self, write: Write) -> None:
        """After all that was begun."""
        if self._then:
            self._then.append(write)
        else:
            self.begin(write)

    def look(self) -> tuple[float, float]:
        """Whether a write has failed, and whether one is still being made."""
        failed = any(write.done() and write.exception() is not None for write in self._begun)
        return float(failed), float(any(not write.done() for write in self._begun))

    def go_on(self, failed: float, busy: float) -> None:
        """After a step. All processes give what they agreed on."""
        if failed:
            self.finish()
        if not busy and self._then:
            self._second_phase()

    def finish(self) -> None:
        """Wait until everything is written. All processes take part, and what failed on one fails on all."""
        if self.background and (self.par.world > 1 or self._begun):
            following, self._then = self._then, []
            self.par.together(self._wait)  # where a part fails, nothing follows it
            if following:
                self._then = following
                self._second_phase()
                self.par.together(self._wait)

    def close(self) -> None:
        """Wait for this process alone: the others may be gone."""
        self._then = []
        with suppress(Exception):
            self._wait()
        if self._pool is not None:
            self._pool.shutdown()

    def _second_phase(self) -> None:
        writes, self._then = self._then, []
        for write in writes:
            self.begin(write)

    def _wait(self) -> None:
        while self._begun:
            self._begun.popleft().result()

    def checkpoint(
        self,
        folder: RunFolder | None,
        kept: Kept,
        *,
        weights: Mapping[str, Tensor],
        optimizer: Mapping[str, Tensor],
        average: Mapping[str, Tensor],
        carried: State,
        **more: Any,
    ) -> None:
        """All processes take part. What is given to one that does not lead, others write, but for its own part."""
        self.finish()  # the one before: each is a copy of everything
        if folder is None:
            return
        optimizer = {name: self.copied(value) for name, value in optimizer.items()}
        rest: Write = partial(
            folder.save,
            weights=self.whole(kept, weights),
            average=self.whole(kept, average),
            optimizer=optimizer,
            carried=map_state(self.copied, carried),
            parts=kept.parts,
            **more,
        )
        rest = rest if self.par.leads else lambda: None
        if kept.parts == 1:
            self.begin(rest)
        else:
            self.par.together(partial(make_room, folder, self.par))
            self.begin_part(partial(write_part, folder, self.par, kept, optimizer), then=rest)

    def whole(self, kept: Kept, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Whole tensors, on the process that writes them; all processes take part."""
        each = kept.each_whole(tensors)
        return {n: self.copied(value if kept.parts == 1 else value.cpu()) for n, value in each if self.par.leads}

    def copied(self, tensor: Tensor) -> Tensor:
        """What steps will not change; the tensor itself where it is written at once."""
        return tensor.detach().to("cpu", copy=True) if self.background else tensor
