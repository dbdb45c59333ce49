"""What a report says of a trained run besides its evaluation: learning curves, memory, costs, and costs by context.

B batch.
"""

import math
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from statewise.comparison.record import read_lines
from statewise.comparison.trial import COSTS, TRAINING_FLOPS, Point
from statewise.core import Machine, State, leaves, map_state
from statewise.models import ConditionalMachine, context_bytes, path, source_bytes, training_bytes
from statewise.specs import UserError
from statewise.tasks import is_finite, metric_of
from statewise.training import read_metrics

M = TypeVar("M")

CONTEXTS = (256, 1024, 4096, 16384, 65536)
_READ = 256  # tokens that are read before a state that grows is extended
_LARGEST = 1 << 29  # bytes of a state whose step is timed
_WARM, _TIMED = 4, 32  # steps before the clock runs, and under it


def bytes_by_context(machine: Machine[Any] | None, *, also: int = CONTEXTS[0]) -> dict[int, int]:
    """Bytes of state of one row by the tokens it has read (of the source, for a model with an encoder)."""
    if machine is None:
        return {}
    contexts = sorted({also, *CONTEXTS})
    if isinstance(machine, ConditionalMachine):
        return _by_context(partial(source_bytes, machine), contexts)
    return _by_context(partial(context_bytes, machine), contexts)


def _by_context(measure: Callable[[int], M], contexts: Sequence[int]) -> dict[int, M]:
    """Up to the first context that the machine cannot read."""
    measured = {}
    for context in contexts:
        try:
            measured[context] = measure(context)
        except UserError:
            break
    return measured


def training_by_context(machine: Machine[Any] | None) -> dict[int, int] | None:
    """Bytes that training on one row of so many tokens keeps for the backward pass."""
    if machine is None or isinstance(machine, ConditionalMachine):
        return None
    return _by_context(partial(training_bytes, machine), CONTEXTS)


def longest_path(machine: Machine[Any] | None, *, reach: int | None) -> str | None:
    """How the path between two tokens grows with their distance N; `none`: between distant ones there is none."""
    if machine is None or isinstance(machine, ConditionalMachine):
        return None
    return "none" if reach is not None and reach < CONTEXTS[-1] else path(machine)


@torch.no_grad()
def seconds_by_context(machine: Machine[Any] | None) -> dict[int, float] | None:
    """To read one more token of one row after so many. A state of fixed size is timed once: the work is the same."""
    if machine is None or isinstance(machine, ConditionalMachine):
        return None
    initial = machine.eval().init_state(1)
    if all(leaf.numel() for _, leaf in leaves(initial)):
        return dict.fromkeys(CONTEXTS, _seconds(machine, _read(machine)))
    sizes = bytes_by_context(machine)
    small = [context for context in CONTEXTS if sizes.get(context, _LARGEST) < _LARGEST]
    return _by_context(lambda context: _seconds(machine, extended_state(machine, context)), small)


def _read(machine: Machine[Any]) -> State:
    state: State = machine.absorb(machine.sample_input(1, _READ, generator=torch.Generator().manual_seed(0)))
    return state


def extended_state(machine: Machine[Any], context: int) -> State:
    """A state as large as after `context` tokens, without reading them: caches are repeated, counters are set.

    It stands for no real text, but a step from it costs the same.
    """

    def extended(leaf: Tensor, empty: Tensor) -> Tensor:
        if not leaf.is_floating_point():
            return torch.where(leaf == _READ, context, leaf)
        for axis, size in enumerate(empty.shape):
            if size == 0:
                repeats = [1] * leaf.dim()
                repeats[axis] = context // _READ
                return leaf.repeat(repeats)
        return leaf

    state: State = map_state(extended, _read(machine), machine.init_state(1))
    return state


def _seconds(machine: Machine[Any], state: State) -> float:
    state, room = machine.reserve(state, _WARM + _TIMED)
    step = machine.step_ if room == _WARM + _TIMED else machine.step
    token_B = machine.sample_input(1, 1, generator=torch.Generator().manual_seed(1))[:, 0]
    for number in range(_WARM + _TIMED):
        if number == _WARM:
            began = _now(machine)
        _, state = step(token_B, state)
    return (_now(machine) - began) / _TIMED


def _now(machine: Machine[Any]) -> float:
    if machine.like.device.type == "cuda":
        torch.cuda.synchronize(machine.like.device)
    return time.perf_counter()


class Clock(NamedTuple):
    """Seconds of training at steps where they are known, without evaluation and saving."""

    steps: list[int]
    tokens: list[int]
    seconds: list[float]

    def at(self, step: int) -> tuple[int, float]:
        """Tokens and seconds after so many steps; between two known places, on the line."""
        places = [(0, 0, 0.0), *zip(self.steps, self.tokens, self.seconds)]
        before = max((place for place in places if place[0] <= step), key=lambda place: place[0])
        after = min((place for place in places if place[0] >= step), key=lambda place: place[0], default=before)
        share = 0.0 if after[0] == before[0] else (step - before[0]) / (after[0] - before[0])
        tokens = round(before[1] + share * (after[1] - before[1]))
        return tokens, before[2] + share * (after[2] - before[2])


def clock(run: Path) -> Clock:
    """From what the run wrote down: `metrics.jsonl` has the tokens, `timing.jsonl` the seconds over all sessions."""
    taken = {line["step"]: line["seconds"] for line in read_lines(run / "timing.jsonl") if "seconds" in line}
    known = [line for line in read_metrics(run) if "tokens" in line and line["step"] in taken]
    steps = [line["step"] for line in known]
    return Clock(steps, [line["tokens"] for line in known], [taken[step] for step in steps])


def curve(run: Path, *, metric: str, at: Clock, flops_per_token: float) -> list[Point]:
    """The validation metric along training. A model that learns by counting multiplies nothing: `flops` is 0."""
    points = []
    for line in read_metrics(run):
        value = line.get(f"validation_{metric}")
        if isinstance(value, float | int) and math.isfinite(value):
            tokens, seconds = at.at(line["step"])
            flops = tokens * flops_per_token * TRAINING_FLOPS
            points.append(Point(line["step"], tokens, seconds, flops, float(value)))
    return points


def watched(run: Path, *, metric: str, at: Clock, flops_per_token: float) -> dict[str, list[Point]]:
    """The other validation metrics, each as a curve; those that say the same in another unit are left out."""
    own = curve(run, metric=metric, at=at, flops_per_token=flops_per_token)
    prefix = "validation_"
    names = {name.removeprefix(prefix) for line in read_metrics(run) for name in line if name.startswith(prefix)}
    if metric_of(metric).cross_entropy:
        names = {name for name in names if not metric_of(name).cross_entropy}
    curves = {
        name: curve(run, metric=name, at=at, flops_per_token=flops_per_token) for name in sorted(names - {metric})
    }
    return {name: points for name, points in curves.items() if points and points != own}


def finite_metrics(evaluation: Mapping[str, Any]) -> dict[str, float]:
    """The evaluation's fields that are finite numbers; of a table of numbers by a number, `name.8` for each."""
    tables = {name: value for name, value in evaluation.items() if isinstance(value, Mapping)}
    inside = {
        f"{name}.{key}": value for name, table in tables.items() for key, value in table.items() if isinstance(key, int)
    }
    return {name: float(value) for name, value in {**evaluation, **inside}.items() if is_finite(value)}


def costs(state_bytes: Mapping[int, int], seconds: Mapping[int, float] | None, *, context: int) -> dict[str, float]:
    """The metrics of `COSTS` after `context` tokens; what was not measured there is left out."""
    size, time = state_bytes.get(context), (seconds or {}).get(context)
    measured = {"state_bytes": size, "milliseconds_per_token": None if time is None else 1e3 * time}
    assert measured.keys() == set(COSTS)
    return {name: float(value) for name, value in measured.items() if value is not None}


def refuse_without(metric: str, metrics: Mapping[str, float], task: str) -> None:
    if metric not in metrics:
        raise UserError(
            f"the metric {metric!r} is not among the finite metrics of this {task} run: {', '.join(metrics)}",
            fix="name one of them as the study's `metric`",
        )


def model_bytes(model: nn.Module) -> int:
    """Everything a model needs to predict: parameters and saved buffers, so a Markov model's count tables too.

    >>> model_bytes(nn.Linear(3, 2))
    32
    """
    return sum(tensor.numel() * tensor.element_size() for tensor in model.state_dict().values())


def peak_bytes(device: torch.device) -> int:
    """Peak memory: of the tensors on a GPU, otherwise of the whole process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
