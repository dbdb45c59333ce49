"""How one step changes a model: forward and backward segment by segment, clip, check, update, average.

On a CPU, and where several processes have to agree, the host looks at the loss and at the gradient before the update.
On a GPU a guard looks at them on the device, so that nothing in a step waits for the host, and where windows repeat
their shapes the whole step is captured once and replayed. Whichever way it goes, a number that is not finite never
reaches a weight.
"""

import hashlib
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from statewise.core import State, concat, detach, map_state, rows
from statewise.specs import TrainSpec
from statewise.training.device import autocast
from statewise.training.graph import Graphs, refuse_what_is_never_captured
from statewise.training.guard import Guard
from statewise.training.optimizer import Average, make_optimizer
from statewise.training.parallel import Parallel
from statewise.training.problem import NonFinite
from statewise.training.task import Task, Window
from statewise.training.truncation import Segment, pass_gradient, segments

S = TypeVar("S", bound=State)
_chance = threading.RLock()


class Taken(NamedTuple):
    """A step that was made, or is on its way on the device."""

    tokens: int  # that it read
    scale: float  # what makes the mean out of the summed loss
    numbers: Tensor  # the summed loss, the gradient's norm before clipping, and perhaps that of each part of it


class Updater:
    """Owns what a step changes: the optimiser's memory, the average of the weights, the state that is carried.

    `guarded`: the device decides whether an update is made. The default is to do so on a GPU, in a single process.
    """

    def __init__(
        self, model: nn.Module, task: Task, spec: TrainSpec, *, seed: int, par: Parallel, guarded: bool | None = None
    ) -> None:
        self.model, self.task, self.spec, self.run_seed, self.par = model, task, spec, seed, par
        guarded = par.device.type == "cuda" and par.world == 1 if guarded is None else guarded
        if not guarded:
            refuse_what_is_never_captured(spec, par)
        self.optimizer = make_optimizer(model, spec, guarded=guarded)
        self.average = Average(model, decay=spec.average)
        if spec.average is not None:
            self.average.start()
        self.state: State | None = None
        self.intact = True  # whether weights, optimiser, average and state are all those of one finished step
        self.updating = False  # whether the step in progress has begun to change the weights
        self.guard: Guard | None = None
        self.graphs: Graphs | None = None
        if guarded:
            self.guard = Guard(model)
            self.graphs = Graphs(self)
            self.rate = torch.zeros((), device=par.device)
            self.share = self.guard.report.new_zeros(())  # of the newest weights in their average

    # ---------------------------------------------------------------- a step

    def take(self, number: int, *, rate: float) -> Taken:
        """Step `number`, with this learning rate. If it raises before the update, nothing has changed."""
        with _alone_with_chance():
            return self._take(number, rate)

    def _take(self, number: int, rate: float) -> Taken:
        window = self.window(number)
        state, averaged = self.state, self.average.count
        self.updating = self.intact = False
        try:
            taken = self._taken(number, window, rate)
        except Exception:
            if not self.updating:
                self.state, self.average.count, self.intact = state, averaged, True
            raise
        self.intact = True
        return taken

    def _taken(self, number: int, window: Window, rate: float) -> Taken:
        if self.guard is None or self.graphs is None:
            return self._checked(number, window, rate)
        self.rate.fill_(rate)
        self.share.fill_(self.average.advance())
        if not self.graphs.replayed(number, window):
            self.make(number, window)
        return Taken(window.tokens, 1 / window.weight, self.guard.report)

    def window(self, number: int) -> Window:
        """What step `number` reads; all chance inside it begins here."""
        self.seed(number)
        if not self.model.training:
            self.model.train()
        return self.task.window(number - 1)

    def seed(self, number: int) -> None:
        _reseed(_seed_of(self.run_seed, number, self.par.rank), self.par.device)

    def make(self, number: int, window: Window) -> None:
        """The step as the device does it, from the window on: nothing in here asks the device for a number."""
        assert self.guard is not None
        norm = self.guard.watch(self.gradient(number, window))
        if self.spec.clip is not None:
            torch.nn.utils.clip_grads_with_norm_(self.guard.parameters, self.spec.clip, norm)
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate
        self.optimizer.found_inf = self.guard.stopped  # type: ignore[attr-defined]  # what fused steps look for
        self.updating = True
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.average.move(self.share)

    def _checked(self, number: int, window: Window, rate: float) -> Taken:
        """The step as the host does it: it looks before it updates."""
        scale = 1 / window.weight
        loss = float(self.gradient(number, window)) * scale
        self.par.average_gradients(self.model)
        norm = torch.nn.utils.get_total_norm([p.grad for p in self.model.parameters() if p.grad is not None])
        total_norm = float(norm)
        bad = not (math.isfinite(loss) and math.isfinite(total_norm))
        if self.par.largest(float(bad))[0]:
            raise NonFinite(number, self.culprit(loss))
        if self.spec.clip is not None:
            torch.nn.utils.clip_grads_with_norm_(self.model.parameters(), self.spec.clip, norm)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.updating = True
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.average.add()
        return Taken(window.tokens, 1.0, torch.tensor([self.par.mean(loss), total_norm], dtype=torch.float64))

    def rehearse(self, number: int) -> None:
        """A step without its update, before the clock runs: whoever compiles kernels does not pay for it with time to
        learn. Nothing is changed by it."""
        with _alone_with_chance():
            self._rehearse(number)

    def _rehearse(self, number: int) -> None:
        state = self.state
        window = self.window(number)
        if self.guard is None or self.graphs is None:
            self.gradient(number, window)
            self.optimizer.zero_grad(set_to_none=True)
            self.state = state
        else:
            with self.unchanged():
                self.make(number, window)
            self.graphs.prepare(number, window)
        if self.par.device.type == "cuda":
            torch.cuda.synchronize(self.par.device)

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Inside, a guarded step does everything that it does, and leaves nothing behind."""
        assert self.guard is not None
        state, share = self.state, self.share.clone()
        self.share.zero_()
        try:
            with self.guard.closed():
                yield
        finally:
            self.state, self.updating = state, False
            self.share.copy_(share)

    # ---------------------------------------------------------------- its gradient

    def gradient(self, number: int, window: Window) -> Tensor:
        """Forward and backward. Returns the summed loss."""
        if window.fresh or self.state is None:
            self.state = self.task.begin(self.model, window.rows)
        total = self.backward(window, segments(self.spec.truncation, window.time, key=(self.run_seed, number)))
        if window.ends:
            self.state = None
        return total

    def backward(self, window: Window, cuts: list[Segment]) -> Tensor:
        """The gradient of the window's mean loss, accumulated over parts of the rows and segments of time."""
        assert self.state is not None
        parts = _parts(window.rows, self.spec.accumulate)
        scale = 1 / window.weight
        losses, states = [], []
        for some in parts:
            state = rows(self.state, some)
            for run in _runs(cuts):
                total: Tensor | None = None
                for segment in run:
                    state = pass_gradient(state, segment.flow)
                    with autocast(self.spec, self.par.device):
                        loss, state = self.task.loss(
                            self.model, window, some, slice(segment.start, segment.stop), state
                        )
                    total = loss if total is None else total + loss
                assert total is not None
                # A GPU's gradients by this thread: waking autograd's own takes longer than a small model's backward.
                with torch.autograd.set_multithreading_enabled(False):
                    (total * scale).backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
                losses.append(total.detach())
                state = detach(state)
            states.append(state)
        if not window.ends:
            self.state = laid_out(concat(states) if len(states) > 1 else states[0])
        return torch.stack(losses).sum()

    def culprit(self, loss: float) -> str:
        """The name of what is not finite, the cause before the symptom."""
        if (weight := self.bad_weight()) is not None:
            return weight
        if not math.isfinite(loss):
            return "the loss"
        for name, p in self.model.named_parameters():
            if p.grad is not None and not torch.isfinite(p.grad).all():
                return f"the gradient of {name}"
        return "the loss or a gradient on another rank"

    def bad_weight(self) -> str | None:
        for name, p in self.model.named_parameters():
            if not torch.isfinite(p).all():
                return f"weight {name}"
        return None


def laid_out(state: S) -> S:
    """In memory of its own, row after row: from another layout a product may round differently than after a resume."""
    return map_state(lambda leaf: leaf.clone(memory_format=torch.contiguous_format), state)


def _parts(count: int, wanted: int) -> list[slice]:
    """`count` rows in `wanted` nearly equal slices (fewer when there are fewer rows)."""
    wanted = min(wanted, count)
    edges = [count * i // wanted for i in range(wanted + 1)]
    return [slice(a, b) for a, b in pairwise(edges)]


def _runs(cuts: list[Segment]) -> list[list[Segment]]:
    """Segments between which gradient flows belong to one backward pass."""
    grouped: list[list[Segment]] = []
    for segment in cuts:
        if segment.flow == 0.0 or not grouped:
            grouped.append([segment])
        else:
            grouped[-1].append(segment)
    return grouped


@contextmanager
def _alone_with_chance() -> Iterator[None]:
    """PyTorch's generator is one for all threads, and dropout takes no other. So a step has it to itself, from its seed
    to its last draw, and whoever drew from it before finds it as it was (on a CPU).
    """
    with _chance:
        before = torch.default_generator.get_state()
        try:
            yield
        finally:
            torch.default_generator.set_state(before)


def _reseed(seed: int, device: torch.device) -> None:
    """`torch.manual_seed` without the devices that are not in use, which cost it more than the seeding."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)


def _seed_of(*key: int) -> int:
    """A well-mixed 63-bit number that depends on every part of the key."""
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
