"""Gradients by truncation policy: bias and variance against full BPTT, time and memory.

B rows, T time steps, P parameters.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from statistics import fmean
from typing import Any, NamedTuple, Protocol
from weakref import finalize

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from statewise.core import Machine, State, detach
from statewise.inspection.lens import half_width
from statewise.specs import FullTruncation, TruncationSpec, UserError
from statewise.tasks import Specimen
from statewise.training import connected, pass_gradient, segments


class Estimate(NamedTuple):
    """A policy's gradients of one batch against the full one; everything in units of its norm."""

    cosine: float  # between them, the mean over draws
    norm: float  # mean norm
    projection: float  # mean component along the full gradient: 1 without bias
    bias: float  # error of the mean of all draws; of an unbiased policy it shrinks as 1/√draws
    spread: float  # standard deviation of one draw about that mean
    off_by: tuple[float, ...]  # the bias after 1, 2, 4, … draws

    @property
    def chance(self) -> float:
        """The bias that an unbiased policy with this spread would show, by chance alone."""
        return self.spread / math.sqrt(self.draws)

    @property
    def draws(self) -> int:
        return 1 << (len(self.off_by) - 1)


class Gradient(Protocol):
    """The gradient `[P]` of a batch under a policy. Its random cuts are a function of `key`."""

    def __call__(self, policy: TruncationSpec, /, *, key: Sequence[int]) -> Tensor: ...


def gradient(
    machine: Machine[Any], inputs_BT: Tensor, targets_BT: Tensor, policy: TruncationSpec, /, *, key: Sequence[int]
) -> Tensor:
    """Of the mean loss over windows of a text, truncated by `policy` as in training."""
    parameters = [p for p in machine.parameters() if p.requires_grad]
    total = [torch.zeros_like(p) for p in parameters]
    state: State = machine.init_state(len(inputs_BT))
    with torch.enable_grad():
        for run in connected(segments(policy, inputs_BT.shape[1], key=key)):
            loss = inputs_BT.new_zeros((), dtype=machine.like.dtype)
            for segment in run:
                state = pass_gradient(state, segment.flow)
                times = slice(segment.start, segment.stop)
                logits_BTV, state = machine(inputs_BT[:, times], state)
                loss = loss + F.cross_entropy(logits_BTV.flatten(0, 1), targets_BT[:, times].flatten(), reduction="sum")
            gradients = torch.autograd.grad(loss / inputs_BT.numel(), parameters, allow_unused=True)
            _add(total, gradients)
            state = detach(state)
    return torch.cat([part.flatten() for part in total])


def row_gradient(
    model: nn.Module, rows: Sequence[Specimen], policy: TruncationSpec, /, *, key: Sequence[int]
) -> Tensor:
    """Of the mean loss of rows, every machine that reads along them truncated by `policy`.

    The answers may need all of a row, so its graph is kept until then. What enters is taken as given.
    """
    parameters = [p for p in model.parameters() if p.requires_grad]
    total = [torch.zeros_like(p) for p in parameters]
    for number, row in enumerate(rows):
        with torch.enable_grad(), truncated(readers_of(row), policy, key=(*key, number)):
            loss = row.costs(row.x_TE[None]).mean() / len(rows)
        _add(total, torch.autograd.grad(loss, parameters, allow_unused=True))
    return torch.cat([part.flatten() for part in total])


def _add(total: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> None:
    for sum_, part in zip(total, gradients, strict=True):
        if part is not None:
            sum_ += part


def readers_of(row: Specimen) -> list[Machine[Any]]:
    """All that carries a state along a row: what answers, and what reads before it or beside it."""
    return [*([] if row.machine is None else [row.machine]), *row.readers.values()]


@contextmanager
def truncated(machines: Sequence[Machine[Any]], policy: TruncationSpec, *, key: Sequence[int]) -> Iterator[None]:
    """Inside, these machines read in segments, and gradients pass between two of them as `policy` says.

    Each has cuts of its own: a gradient that passes several machines is unbiased only if they are independent.
    """
    for number, machine in enumerate(machines):
        vars(machine)["forward"] = partial(_in_segments, machine.forward, machine, policy, (*key, number))
    try:
        yield
    finally:
        for machine in machines:
            del vars(machine)["forward"]


def _in_segments(
    forward: Callable[..., tuple[Tensor, Any]],
    machine: Machine[Any],
    policy: TruncationSpec,
    key: Sequence[int],
    x: Tensor,
    state: Any = None,
    lengths_B: Tensor | None = None,
) -> tuple[Tensor, Any]:
    """The same values as `forward`."""
    state = machine.init_state(len(x)) if state is None else state
    outputs = []
    for start, stop, flow in segments(policy, x.shape[1], key=key):
        if start:  # what it begins with was not read by this machine
            state = pass_gradient(state, flow)
        left_B = None if lengths_B is None else (lengths_B - start).clamp(0, stop - start)
        y, state = forward(x[:, start:stop], state, left_B)
        outputs.append(y)
    return torch.cat(outputs, dim=1), state


def estimate(
    gradient: Gradient, policy: TruncationSpec, *, draws: int, seed: int = 0, full_P: Tensor | None = None
) -> Estimate:
    """`draws` (a power of two) random truncations; one gradient is in memory at a time."""
    if full_P is None:
        full_P = gradient(FullTruncation(), key=(seed,))
    size = float(full_P.norm())
    if not size > 0:  # or not a number
        raise UserError(
            f"the full gradient has norm {size:g}: no other can be compared with it", fix="name another run"
        )
    mean_P = torch.zeros_like(full_P)
    cosine = norm = projection = squares = 0.0
    off_by = []
    for number in range(1, draws + 1):
        drawn_P = gradient(policy, key=(seed, number))
        own = float(drawn_P.norm())
        along = float(drawn_P @ full_P) / size
        cosine += along / max(own, 1e-300) / draws
        norm += own / size / draws
        projection += along / size / draws
        apart_P = drawn_P - mean_P
        mean_P += apart_P / number
        squares += float(apart_P @ (drawn_P - mean_P))  # Welford: a single draw has no spread, to the last bit
        if number & (number - 1) == 0:
            off_by.append(float((mean_P - full_P).norm()) / size)
    spread = math.sqrt(squares / max(draws - 1, 1)) / size
    return Estimate(cosine, norm, projection, off_by[-1], spread, tuple(off_by))


_REPEATS = 3


class Cost(NamedTuple):
    seconds: float  # the median of a few
    held_bytes: int  # peak size of the tensors that the graph keeps for the backward pass


class _Held:
    """A tensor that a graph keeps; a finalizer runs when it is released."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


class _Meter:
    """Bytes of all storage that a graph keeps, each counted once; storage that existed before is not counted."""

    def __init__(self, known: set[int]) -> None:
        self._known, self._holders = known, dict[int, int]()
        self._sizes: dict[int, int] = {}
        self.now = self.most = 0

    def pack(self, tensor: Tensor) -> _Held:
        storage = tensor.untyped_storage()
        place = storage.data_ptr()
        held = _Held(tensor)
        if place not in self._known:
            if self._holders.setdefault(place, 0) == 0:
                self._sizes[place] = storage.nbytes()
                self.now += self._sizes[place]
                self.most = max(self.most, self.now)
            self._holders[place] += 1
            finalize(held, self._let_go, place)
        return held

    def unpack(self, held: _Held) -> Tensor:
        return held.tensor

    def _let_go(self, place: int) -> None:
        self._holders[place] -= 1
        if self._holders[place] == 0:
            self.now -= self._sizes[place]


def cost(compute: Callable[[], Any], *, known: list[Tensor]) -> Cost:
    """Time and memory of a forward and backward pass. `known`: tensors that exist anyway, such as weights."""
    device = known[0].device
    compute()  # warm-up
    seconds = []
    for _ in range(_REPEATS):
        began = _now(device)
        compute()
        seconds.append(_now(device) - began)
    meter = _Meter({tensor.untyped_storage().data_ptr() for tensor in known})
    with torch.autograd.graph.saved_tensors_hooks(meter.pack, meter.unpack):
        compute()
    return Cost(sorted(seconds)[len(seconds) // 2], meter.most)


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


class Trained(NamedTuple):
    """Trainings with one policy."""

    nats: tuple[float, ...]  # on held-out text, by seed
    seconds: float  # of training, the mean over seeds


class Measured(NamedTuple):
    """A policy over all batches."""

    estimates: tuple[Estimate, ...]
    cost: Cost
    random: bool  # whether the policy draws its cuts
    trained: Trained | None = None

    def mean(self, field: str) -> float:
        return fmean(getattr(estimate, field) for estimate in self.estimates)

    def half(self, field: str) -> float | None:
        return half_width([getattr(estimate, field) for estimate in self.estimates])
