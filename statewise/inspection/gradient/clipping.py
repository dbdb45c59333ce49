"""How often training clipped its gradient: from what the run wrote down."""

from pathlib import Path
from typing import NamedTuple

from statewise.training import read_metrics


class Clipping(NamedTuple):
    """Between two notes: the last step, the share of steps that were clipped, the largest norm."""

    steps: tuple[int, ...]
    share: tuple[float, ...]
    norm: tuple[float, ...]

    @property
    def total(self) -> float:
        """Of all steps, the share that was clipped."""
        spans = [b - a for a, b in zip((0, *self.steps), self.steps)]
        return sum(share * span for share, span in zip(self.share, spans)) / max(sum(spans), 1)


def clipping(run: Path) -> Clipping | None:
    """None where the run kept no such notes: it learned by counting."""
    lines = [line for line in read_metrics(run) if "clipped" in line and "gradient_norm" in line]
    if not lines:
        return None
    steps = tuple(int(line["step"]) for line in lines)
    spans = [max(b - a, 1) for a, b in zip((0, *steps), steps)]
    shares = tuple(min(line["clipped"] / span, 1.0) for line, span in zip(lines, spans))
    return Clipping(steps, shares, tuple(float(line["gradient_norm"]) for line in lines))
