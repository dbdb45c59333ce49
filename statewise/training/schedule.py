"""The learning rate as a function of the step; plateaus as a function of the evaluations so far."""

import math
from typing import NamedTuple, assert_never

from statewise.specs import TrainSpec


class Plateau(NamedTuple):
    """What the evaluations so far say: the best, how long ago it was, and the rate's factor."""

    best: float = math.inf
    stale: int = 0  # evaluations since the best
    waited: int = 0  # evaluations since the best or the last fall of the rate
    factor: float = 1.0

    def after(self, nats: float, spec: TrainSpec) -> "Plateau":
        if nats < self.best:
            return Plateau(nats, 0, 0, self.factor)
        if spec.schedule == "plateau" and self.waited + 1 >= spec.wait:
            return Plateau(self.best, self.stale + 1, 0, self.factor * spec.decay)
        return Plateau(self.best, self.stale + 1, self.waited + 1, self.factor)


def learning_rate(step: float, spec: TrainSpec, plateau: Plateau) -> float:
    """The rate of the update that makes step `step` (counted from 1; between two, where seconds are counted)."""
    warm = min(1.0, step / spec.warmup) if spec.warmup else 1.0
    match spec.schedule:
        case "constant":
            return spec.lr * warm
        case "plateau":
            return spec.lr * warm * plateau.factor
        case "cosine" | "linear":
            done = min(1.0, max(0.0, (step - spec.warmup) / max(1, spec.steps - spec.warmup)))
            left = 0.5 * (1 + math.cos(math.pi * done)) if spec.schedule == "cosine" else 1 - done
            return spec.lr * warm * (spec.final + (1 - spec.final) * left)
        case _:
            assert_never(spec.schedule)
