"""What a report says of a trained run besides its evaluation: learning curves, memory, costs."""

import math
import resource
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from statewise.comparison.record import read_lines
from statewise.comparison.trial import COSTS, TRAINING_FLOPS, Point
from statewise.specs import UserError
from statewise.tasks import is_finite, metric_of
from statewise.training import read_metrics


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
