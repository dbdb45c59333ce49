"""How one step changes a model: forward and backward segment by segment, clip, check, update, average.

On a CPU, and where several processes have to agree, the host checks the loss and the gradient before the update. On a
GPU a guard checks them on the device, so that a step never waits for the host, and where windows repeat their shapes
the whole step is captured once and replayed. Either way, a number that is not finite never reaches a weight.
"""

import hashlib
import math
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar, assert_never

import numpy as np
import torch
from torch import Tensor, nn

from statewise.core import State, concat, detach, map_state, rows
from statewise.specs import (
    FixedTruncation,
    FullTruncation,
    RandomTruncation,
    TrainSpec,
    TruncationSpec,
    UnbiasedTruncation,
)
from statewise.training.graph import Graphs, refuse_what_is_never_captured
from statewise.training.optimizer import Average, make_optimizer
from statewise.training.parallel import Kept, Parallel
from statewise.training.step_report import Guard
from statewise.training.stop import NonFinite
from statewise.training.task import Task, Window

S = TypeVar("S", bound=State)
T = TypeVar("T")
_rng_lock = threading.RLock()


class Segment(NamedTuple):
    """A stretch of time, and the factor on the gradient that leaves it for what came before."""

    start: int
    stop: int
    flow: float


class StepResult(NamedTuple):
    """A step that was made, or is queued on the device."""

    tokens: int  # that it read
    scale: float  # turns the summed loss into the mean
    numbers: (
        Tensor | list[float]
    )  # summed loss, gradient norm before clipping, on a device that of each parameter's part


class Whole(Kept):
    """A model whose parameters every rank holds whole; gradients are averaged before an update."""

    def __init__(self, model: nn.Module, task: Task, par: Parallel) -> None:
        self.model, self.task, self.par = model, task, par
        self.weights = dict(model.named_parameters())
        self._flat: Tensor | None = None  # where averaged gradients lie

    def to_model(self) -> None:
        """After `weights` have changed: the model has them too. `to_weights` is the inverse."""

    def to_weights(self) -> None:
        pass

    def call(self, call: Callable[[], T]) -> T:
        """Call something that reads the model and learns nothing."""
        return call()

    def loss(self, window: Window, some: slice, times: slice, state: Any) -> tuple[Tensor, Any]:
        return self.task.loss(self.model, window, some, times, state)

    def slices(self, rows: int, wanted: int) -> int:
        """Into how many slices of rows a batch is split."""
        return wanted

    def collect_gradients(self) -> None:
        """After the backward passes: `weights` have the mean gradient over all ranks."""
        if self.par.world > 1:
            self._flat = self.par.average_gradients(self.model.parameters(), self._flat)

    def drop_gradients(self) -> None:
        self.model.zero_grad(set_to_none=True)

    def norm(self) -> Tensor:
        """Of the whole gradient."""
        return torch.nn.utils.get_total_norm([p.grad for p in self.weights.values() if p.grad is not None])


class Updater:
    """Owns what a step changes: the optimiser's state, the average of the weights, the carried state.

    `guarded`: the device decides whether an update is made. The default is yes on a GPU in a single process.
    """

    def __init__(
        self,
        model: nn.Module,
        task: Task,
        spec: TrainSpec,
        *,
        seed: int,
        par: Parallel,
        guarded: bool | None = None,
        placement: Whole | None = None,
    ) -> None:
        self.model, self.task, self.spec, self.run_seed, self.par = model, task, spec, seed, par
        on_device = par.device.type == "cuda" and par.world == 1 and not spec.offload
        guarded = on_device if guarded is None else guarded
        if not guarded:
            refuse_what_is_never_captured(spec, par)
        self.placement = placement or Whole(model, task, par)
        self.optimizer = make_optimizer(model, spec, guarded=guarded, placement=self.placement)
        self.average = Average(self.placement.weights, decay=spec.average, written=self.placement.to_model)
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
            self.optimizer.found_inf = self.guard.stopped  # type: ignore[attr-defined]  # what fused optimisers read
            self.rate = torch.zeros((), device=par.device)
            self.share = self.guard.report.new_zeros(())  # of the newest weights in their average

    # ---------------------------------------------------------------- a step

    def take(self, number: int, *, rate: float) -> StepResult:
        """Step `number`, with this learning rate. If it raises before the update, nothing has changed."""
        with _own_random_numbers():
            window = self.window(number)
            state, averaged = self.state, self.average.count
            self.updating = self.intact = False
            try:
                result = self._take(number, window, rate)
            except Exception:
                if not self.updating:
                    self.state, self.average.count, self.intact = state, averaged, True
                raise
            self.intact = True
            return result

    def _take(self, number: int, window: Window, rate: float) -> StepResult:
        if self.guard is None or self.graphs is None:
            return self._take_on_host(number, window, rate)
        self.rate.fill_(rate)
        self.share.fill_(self.average.advance())
        if not self.graphs.replayed(number, window):
            self.make(number, window)
        return StepResult(window.tokens, 1 / window.weight, self.guard.report)

    def window(self, number: int) -> Window:
        """What step `number` reads. Seeds all randomness inside the step."""
        self.seed(number)
        if not self.model.training:
            self.model.train()
        return self.task.window(number - 1)

    def seed(self, number: int) -> None:
        _reseed(_seed_of(self.run_seed, number, self.par.rank), self.par.device)

    def make(self, number: int, window: Window) -> None:
        """The step on the device, after its window: nothing here reads a number from the device."""
        assert self.guard is not None
        self._update(self.guard.watch(self.gradient(number, window)), self.rate)
        self.average.move(self.share)

    def _take_on_host(self, number: int, window: Window, rate: float) -> StepResult:
        """The step on the host: it checks before it updates."""
        loss = float(self.gradient(number, window)) * (1 / window.weight)
        self.placement.collect_gradients()
        norm = self.placement.norm()
        numbers = [loss, float(norm)]
        bad = not all(map(math.isfinite, numbers))
        if self.par.world > 1:
            bad = bool(self.par.largest(float(bad))[0])
        if bad:
            raise NonFinite(number, self.culprit(loss))
        self._update(norm, rate)
        if self.average.count:
            self.average.add()
        if self.par.world > 1:
            numbers[0] = self.par.mean(loss)
        return StepResult(window.tokens, 1.0, numbers)

    def _update(self, norm: Tensor, rate: float | Tensor) -> None:
        """Clip gradients of this norm, set the learning rate, step, and drop the gradients."""
        if self.spec.clip is not None:
            torch.nn.utils.clip_grads_with_norm_(self.placement.weights.values(), self.spec.clip, norm)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.updating = True
        self.optimizer.step()
        self.placement.to_model()
        self.optimizer.zero_grad(set_to_none=True)

    def rehearse(self, number: int) -> None:
        """A step without its update, before the clock runs, so that compiling kernels costs no training time.

        Nothing is changed by it.
        """
        with _own_random_numbers():
            state = self.state
            window = self.window(number)
            if self.guard is None or self.graphs is None:
                self.gradient(number, window)
                self.placement.drop_gradients()
                self.state = state
            else:
                with self.unchanged():
                    self.make(number, window)
                self.graphs.prepare(number, window)
            if self.par.device.type == "cuda":
                torch.cuda.synchronize(self.par.device)

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Inside, a guarded step computes everything and changes nothing."""
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
            self.state = self.placement.call(lambda: self.task.begin(self.model, window.rows))
        total = self.backward(window, segments(self.spec.truncation, window.time, key=(self.run_seed, number)))
        if window.ends:
            self.state = None
        return total

    def backward(self, window: Window, cuts: list[Segment]) -> Tensor:
        """The gradient of the window's mean loss, accumulated over slices of the rows and segments of time."""
        assert self.state is not None
        scale = 1 / window.weight
        losses, states = [], []
        for some in _slices(window.rows, self.placement.slices(window.rows, self.spec.accumulate)):
            state = rows(self.state, some)
            for group in connected(cuts):
                total: Tensor | None = None
                for segment in group:
                    state = pass_gradient(state, segment.flow)
                    with autocast(self.spec, self.par.device):
                        loss, state = self.placement.loss(window, some, slice(segment.start, segment.stop), state)
                    total = loss if total is None else total + loss
                assert total is not None
                # In this thread: waking autograd's own for a GPU takes longer than the backward of a small model.
                with torch.autograd.set_multithreading_enabled(False):
                    (total * scale).backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
                losses.append(total.detach())
                state = detach(state)
            states.append(state)
        if not window.ends:
            self.state = contiguous_copy(concat(states) if len(states) > 1 else states[0])
        return torch.stack(losses).sum()

    def culprit(self, loss: float) -> str:
        """The name of what is not finite, the cause before the symptom."""
        if (weight := self.bad_weight()) is not None:
            return weight
        if not math.isfinite(loss):
            return "the loss"
        for name, p in self.placement.weights.items():
            if p.grad is not None and not torch.isfinite(p.grad).all():
                return f"the gradient of {name}"
        return "the loss or a gradient on another rank"

    def bad_weight(self) -> str | None:
        names, weights = list(self.placement.weights), self.placement.weights.values()
        wrong = next((number for number, p in enumerate(weights) if not torch.isfinite(p).all()), None)
        wrong = self.placement.first_of_all(wrong)
        return None if wrong is None else f"weight {names[wrong]}"


# -------------------------------------------------------------------- truncation and precision


def segments(policy: TruncationSpec, time: int, *, key: Iterable[int]) -> list[Segment]:
    """Cut a window of `time` tokens by one of the four policies. Its randomness is a function of `key`.

    A window always begins with a cut: between two windows the weights have changed.
    """
    match policy:
        case FullTruncation():
            return [Segment(0, time, 0.0)]
        case FixedTruncation(length=length):
            starts = list(range(0, time, length))
            flows = [0.0] * len(starts)
        case RandomTruncation(length=length):
            # Lengths uniform on 1 … 2·length - 1: the mean is `length`, and no segment is endless.
            lengths = _rng(key).integers(1, 2 * length, size=time)
            starts = [0, *(int(end) for end in np.cumsum(lengths) if end < time)]
            flows = [0.0] * len(starts)
        case UnbiasedTruncation(length=length, keep=keep):
            starts = list(range(0, time, length))
            kept = _rng(key).random(len(starts)) < keep
            flows = [0.0, *(1 / keep if k else 0.0 for k in kept[1:])]
        case _:
            assert_never(policy)
    stops = [*starts[1:], time]
    return [Segment(start, stop, flow) for start, stop, flow in zip(starts, stops, flows, strict=True)]


def _rng(key: Iterable[int]) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence(list(key)))


def pass_gradient(state: S, flow: float) -> S:
    """The same state; on the way back its gradient is multiplied by `flow` (0 cuts, 1 changes nothing)."""
    if flow == 0.0:
        return detach(state)
    if flow == 1.0:
        return state
    scale: Any = _Scale.apply
    return map_state(lambda leaf: scale(leaf, flow) if leaf.is_floating_point() else leaf, state)


class _Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, flow: float) -> Tensor:
        ctx.flow = flow
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient * ctx.flow, None


def autocast(spec: TrainSpec, device: torch.device) -> AbstractContextManager[Any]:
    """bfloat16 if the spec asks for it, or by default on a device that supports it; float32 otherwise."""
    wanted = spec.precision in ("bfloat16", "bfloat16-weights") or (
        spec.precision == "auto" and device.type == "cuda" and torch.cuda.is_bf16_supported()
    )
    return torch.autocast(device.type, dtype=torch.bfloat16) if wanted else nullcontext()


def contiguous_copy(state: S) -> S:
    """A contiguous copy: with another memory layout, a product may round differently than after a resume."""
    return map_state(lambda leaf: leaf.clone(memory_format=torch.contiguous_format), state)


def _slices(count: int, wanted: int) -> list[slice]:
    """`count` rows in `wanted` nearly equal slices (fewer when there are fewer rows)."""
    wanted = min(wanted, count)
    edges = [count * i // wanted for i in range(wanted + 1)]
    return [slice(a, b) for a, b in pairwise(edges)]


def connected(cuts: list[Segment]) -> list[list[Segment]]:
    """Segments grouped by backward pass: gradient flows between those of one group."""
    groups: list[list[Segment]] = []
    for segment in cuts:
        if segment.flow == 0.0 or not groups:
            groups.append([segment])
        else:
            groups[-1].append(segment)
    return groups


@contextmanager
def _own_random_numbers() -> Iterator[None]:
    """Lock PyTorch's default generator, which all threads share and dropout draws from, and restore it (on a CPU)."""
    with _rng_lock:
        before = torch.default_generator.get_state()
        try:
            yield
        finally:
            torch.default_generator.set_state(before)


def _reseed(seed: int, device: torch.device) -> None:
    """`torch.manual_seed`, but only for the devices in use: seeding all of them takes longer."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)


def _seed_of(*key: int) -> int:
    """A well-mixed 63-bit number that depends on every part of the key."""
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
