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

_EXPLODED_LOSS, _EXPLODED_NORM = 10.0, 1e6  # times those of an untrained model


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
    first: tuple[float, float] | None = None  # loss and norm of the first step: what an untrained model has

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

    def exploded(self, loss: float, norm: float, spec: TrainSpec) -> bool:
        """Whether a step shows weights that are worth nothing any more, though all their numbers are finite.

        A norm that is clipped does no harm, however large.
        """
        first_loss, first_norm = self.first or (loss, norm)
        harmful = spec.clip is None and norm > _EXPLODED_NORM * max(1.0, first_norm)
        return harmful or loss > _EXPLODED_LOSS * max(1.0, abs(first_loss))

    def gave_up(self, spec: TrainSpec) -> bool:
        """Validation has not improved for as long as the spec is patient."""
        return spec.patience is not None and self.plateau.stale >= spec.patience


def passed(every: int, *, before: float, after: float) -> bool:
    """Whether a multiple of `every` lies between two places."""
    return after // every > before // every
