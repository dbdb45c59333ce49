"""What a training takes, before it begins: bytes and seconds of its first steps, on weights that are thrown away."""

import statistics
import time
import weakref
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from statewise.specs import TrainSpec, UserError
from statewise.training.device import memory_of, training_bytes
from statewise.training.parallel import Parallel
from statewise.training.sharded import place
from statewise.training.task import Task
from statewise.training.update import Updater

_FEW = (2, 4)  # rows whose bytes are extrapolated
_ENOUGH = 2.0  # seconds of steps
_MOST = 10  # steps


class Plan(NamedTuple):
    """`rows` of a batch are read at once, and `fit` could be; where these are fewer, no step was made."""

    parameters: int
    steps: int
    tokens: int  # that all steps read
    held: int  # bytes of weights, optimiser and average, from step to step
    peak: int  # bytes while a step is made, with these
    memory: int | None  # of the device; None where it is unknown
    rows: int
    fit: int
    step_seconds: float | None  # without evaluations


def plan(model: nn.Module, task: Task, spec: TrainSpec, *, seed: int, par: Parallel) -> Plan:
    """Measure the first steps of a training of `model`, whose weights change."""
    if par.world > 1:
        raise UserError("a plan is made by one process", fix="leave torchrun out; each process needs its part of it")
    parameters = sum(p.numel() for p in model.parameters())
    updater = Updater(model, task, spec, seed=seed, par=par, placement=place(model, task, spec, par))
    window = updater.window(1)
    at_once = -(-window.rows // min(spec.accumulate, window.rows))
    made = Plan(parameters, spec.steps, spec.steps * window.tokens, 0, 0, memory_of(par.device), at_once, at_once, None)

    # A few rows first: what does not fit is not tried.
    updater.spec = spec.model_copy(update={"accumulate": 1})
    each = {}
    for rows in sorted({min(count, at_once) for count in _FEW}):
        some = window._replace(rows=rows)
        each[rows] = peak(partial(updater.gradient, 1, some), model, par.device)
        updater.placement.drop_gradients()
    updater.state, updater.spec = None, spec
    held = training_bytes(parameters, spec) - 4 * parameters + _bytes(updater.average.mean.values())
    least, most = min(each), max(each)
    a_row = (each[most] - each[least]) / max(1, most - least)
    room = float("inf") if made.memory is None else made.memory - held - (each[most] - most * a_row)
    if at_once * a_row > room:
        fit = max(0, int(room // a_row)) if a_row else 0
        return made._replace(held=held, peak=round(held + each[most] + (at_once - most) * a_row), fit=fit)

    of_gradient = peak(lambda: updater.gradient(1, window), model, par.device)
    updater.placement.drop_gradients()
    updater.state = None
    seconds: list[float] = []
    while not seconds or (sum(seconds) < _ENOUGH and len(seconds) < _MOST):
        began = time.perf_counter()
        updater.take(1 + len(seconds), rate=spec.lr)
        if par.device.type == "cuda":
            torch.cuda.synchronize(par.device)
        seconds.append(time.perf_counter() - began)
    moments = (part for state in updater.optimizer.state.values() for part in state.values())
    tensors = (part for part in moments if isinstance(part, Tensor))
    held = sum(_bytes(of) for of in (updater.placement.weights.values(), updater.average.mean.values(), tensors))
    later = seconds[1:] or seconds  # the first one makes kernels and memory ready
    return made._replace(held=held, peak=held + of_gradient, step_seconds=statistics.median(later))


def peak(run: Callable[[], object], model: nn.Module, device: torch.device) -> int:
    """Bytes that tensors take at the peak of a call, besides those that are there before it."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        run()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    with Alive([*model.parameters(), *model.buffers()]) as alive:
        run()
    most: int = alive.peak
    return most


class Alive(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch leaves it untyped
    """Bytes of all storages that ops have made and nobody has let go of; those of `known` do not count."""

    def __init__(self, known: Iterable[Tensor] = ()) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen = {part.untyped_storage().data_ptr() for part in known}
        self.now: int = 0
        self.peak: int = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for part in result if isinstance(result, tuple | list) else [result]:
            if isinstance(part, Tensor):
                self._count(part.untyped_storage())
        return result

    def _count(self, storage: torch.UntypedStorage) -> None:
        key, size = storage.data_ptr(), storage.nbytes()
        if key in self.seen or size == 0:
            return
        self.seen.add(key)
        self.now += size
        self.peak = max(self.peak, self.now)

        def gone() -> None:
            self.seen.discard(key)
            self.now -= size

        weakref.finalize(storage, gone)


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(part.numel() * part.element_size() for part in tensors)
