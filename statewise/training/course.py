"""How far a run has come, and where it ends: by steps, or by seconds of training.

With seconds, `steps` is the ruler: a share of the time stands for the same share of the steps. So the rate ends where
it should whatever a step costs, and a slow model is evaluated as often as a fast one, which matters because the best
evaluation is what is kept. The other way, to time some steps and fix their number, repeats more exactly but ends
wherever the machine's speed takes it; a budget has to be met.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from statewise.specs import TrainSpec, UserError
from statewise.training.schedule import Plateau


class Extent(NamedTuple):
    """What is done and what is asked for, for those who show it. `all_seconds`: None where steps decide."""

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
    """All that a run knows of itself besides tensors. Saved with every checkpoint."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0  # of steps alone, over all sessions; evaluation and saving are not training
    plateau: Plateau = field(default_factory=Plateau)
    best_step: int | None = None
    best: dict[str, float] = field(default_factory=dict)
    evaluated: bool = True  # False: a signal came between a step and the evaluation due after it
    averaged: int = 0
    since_log: tuple[float, int, int, float] = (0.0, 0, 0, 0.0)  # loss, steps, clip events, largest norm

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> "Progress":
        try:
            record = {"seconds": 0.0, **record}  # runs from before it was counted
            known = {name: record[name] for name in cls.__dataclass_fields__}
            known["plateau"] = Plateau(*known["plateau"])
            loss, steps, clips, norm = known["since_log"]
            known["since_log"] = (float(loss), int(steps), int(clips), float(norm))
            known["seconds"] = float(known["seconds"])
            return cls(**known)
        except (KeyError, TypeError, ValueError):
            raise UserError("progress.json is not the record of a run") from None

    def extent(self, spec: TrainSpec) -> Extent:
        return Extent(self.step, spec.steps, self.seconds, spec.seconds)

    def place(self, spec: TrainSpec) -> float:
        """Where on the ruler of `spec.steps` it is."""
        return float(self.step) if spec.seconds is None else spec.steps * min(1.0, self.seconds / spec.seconds)

    def place_of(self, number: int, spec: TrainSpec) -> float:
        """Where step `number`, the next, stands, for its rate: the first is not before the first mark."""
        return float(number) if spec.seconds is None else max(1.0, self.place(spec))

    def is_over(self, spec: TrainSpec) -> bool:
        """With seconds: the end is nearer now than it would be after one more step."""
        if spec.seconds is None:
            return self.step >= spec.steps
        return self.step > 0 and self.seconds + self.seconds / self.step / 2 >= spec.seconds

    def gave_up(self, spec: TrainSpec) -> bool:
        """Validation has not improved for as long as the spec is patient."""
        return spec.patience is not None and self.plateau.stale >= spec.patience


def passed(every: int, *, before: float, after: float) -> bool:
    """Whether a multiple of `every` lies between two places."""
    return after // every > before // every
