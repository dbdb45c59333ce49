"""How far a run has come, where it ends, and the learning rate there.

A run ends by steps or by seconds of training. With seconds, `steps` is the ruler: a share of the time stands for the
same share of the steps. So the learning rate ends where it should whatever a step costs, and a slow model is evaluated
as often as a fast one, which matters because the best evaluation is kept. To time some steps and fix their number
instead would repeat more exactly, but would miss the budget where the machine's speed changes.
"""

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple, assert_never

from statewise.specs import TrainSpec, UserError

_EXPLODED_LOSS, _EXPLODED_NORM = 10.0, 1e6  # times those of an untrained model


class Plateau(NamedTuple):
    """What the evaluations so far say: the best, how long ago it was, and the factor on the learning rate."""

    best: float = math.inf
    stale: int = 0  # evaluations since the best
    waited: int = 0  # evaluations since the best or the last decay of the learning rate
    factor: float = 1.0

    def after(self, nats: float, spec: TrainSpec) -> "Plateau":
        if nats < self.best:
            return Plateau(nats, 0, 0, self.factor)
        if spec.schedule == "plateau" and self.waited + 1 >= spec.wait:
            return Plateau(self.best, self.stale + 1, 0, self.factor * spec.decay)
        return Plateau(self.best, self.stale + 1, self.waited + 1, self.factor)


def learning_rate(step: float, spec: TrainSpec, plateau: Plateau) -> float:
    """The learning rate of step `step` (counted from 1; a fraction where seconds are counted)."""
    warm_up = min(1.0, step / spec.warmup) if spec.warmup else 1.0
    match spec.schedule:
        case "constant":
            return spec.lr * warm_up
        case "plateau":
            return spec.lr * warm_up * plateau.factor
        case "cosine" | "linear":
            done = min(1.0, max(0.0, (step - spec.warmup) / max(1, spec.steps - spec.warmup)))
            left = 0.5 * (1 + math.cos(math.pi * done)) if spec.schedule == "cosine" else 1 - done
            return spec.lr * warm_up * (spec.final + (1 - spec.final) * left)
        case _:
            assert_never(spec.schedule)


class Extent(NamedTuple):
    """What is done and what is to do, for a display. `all_seconds`: None where steps decide."""

    step: int
    steps: int
    seconds: float
    all_seconds: float | None

    @property
    def done(self) -> float:
        return self.step if self.all_seconds is None else min(self.seconds, self.all_seconds)

    @property
    def whole(self) -> float:
        return self.steps if self.all_seconds is None else self.all_seconds

    def __str__(self) -> str:
        if self.all_seconds is None:
            return f"step {self.step}/{self.steps}"
        return f"{self.done:.0f}/{self.all_seconds:.0f} s, step {self.step}"


@dataclass(frozen=True)
class Progress:
    """The state of a run besides its tensors. Saved with every checkpoint."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0  # of steps alone, over all sessions; evaluation and saving are not training
    plateau: Plateau = field(default_factory=Plateau)
    best_step: int | None = None
    best: dict[str, float] = field(default_factory=dict)
    evaluated: bool = True  # False: a signal came between a step and the evaluation due after it
    averaged: int = 0
    since_log: tuple[float, int, int, float] = (0.0, 0, 0, 0.0)  # loss, steps, clip events, largest norm
    first: tuple[float, float] | None = None  # loss and norm of the first step, of an untrained model

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> "Progress":
        try:
            record = {"seconds": 0.0, "first": None, **record}  # runs from before these were kept
            known = {name: record[name] for name in cls.__dataclass_fields__}
            known["plateau"] = Plateau(*known["plateau"])
            loss, steps, clips, norm = known["since_log"]
            known["since_log"] = (float(loss), int(steps), int(clips), float(norm))
            known["seconds"] = float(known["seconds"])
            if known["first"] is not None:
                loss, norm = known["first"]
                known["first"] = (float(loss), float(norm))
            return cls(**known)
        except (KeyError, TypeError, ValueError):
            raise UserError("progress.json is not the record of a run") from None

    def extent(self, spec: TrainSpec) -> Extent:
        return Extent(self.step, spec.steps, self.seconds, spec.seconds)

    def place(self, spec: TrainSpec) -> float:
        """Its position on the scale of `spec.steps`."""
        return float(self.step) if spec.seconds is None else spec.steps * min(1.0, self.seconds / spec.seconds)

    def place_of(self, number: int, spec: TrainSpec) -> float:
        """The position of the next step, `number`, for its learning rate: at least 1."""
        return float(number) if spec.seconds is None else max(1.0, self.place(spec))

    def is_over(self, spec: TrainSpec) -> bool:
        """With seconds: the end is nearer now than it would be after one more step."""
        if spec.seconds is None:
            return self.step >= spec.steps
        return self.step > 0 and self.seconds + self.seconds / self.step / 2 >= spec.seconds

    def exploded(self, loss: float, norm: float, spec: TrainSpec) -> bool:
        """Whether a step shows that the weights are useless, though all of them are finite.

        A clipped norm does no harm, however large.
        """
        first_loss, first_norm = self.first or (loss, norm)
        harmful = spec.clip is None and norm > _EXPLODED_NORM * max(1.0, first_norm)
        return harmful or loss > _EXPLODED_LOSS * max(1.0, abs(first_loss))

    def gave_up(self, spec: TrainSpec) -> bool:
        """Whether validation has not improved for `spec.patience` evaluations."""
        return spec.patience is not None and self.plateau.stale >= spec.patience


def passed(every: int, *, before: float, after: float) -> bool:
    """Whether a multiple of `every` lies between two positions."""
    return after // every > before // every
