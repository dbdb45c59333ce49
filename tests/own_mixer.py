"""A mixer that is not in the package, as a user would write it into a file."""

from pathlib import Path

from statewise.models.custom import CustomMixer, own_mixer

# Sums that fade, each unit at its own learned rate; the state also counts what went into them.
FADING = """
from typing import Annotated, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn

from statewise.core import Mixer, observe, unroll


class FadingState(NamedTuple):
    sum_BD: Tensor
    count_B: Tensor


class FadingSum(Mixer[FadingState]):
    def __init__(
        self,
        width: int,
        *,
        input_width: int | None = None,
        keep: Annotated[float, Field(gt=0, lt=1)] = 0.9,
        start: Literal["equal", "spread"] = "equal",
    ) -> None:
        super().__init__()
        self.input_width = input_width or width
        self.output_width = width
        self.enter = nn.Linear(self.input_width, width)
        logit_D = torch.full((width,), keep).logit()
        self.logit_D = nn.Parameter(logit_D if start == "equal" else logit_D + torch.randn(width))

    def init_state(self, batch: int) -> FadingState:
        zeros_BD = self.like.new_zeros(batch, self.output_width)
        return FadingState(zeros_BD, torch.zeros(batch, dtype=torch.long, device=self.like.device))

    def forward(self, x_BTI, state=None, lengths_B=None):
        return unroll(self.step, x_BTI, state or self.init_state(len(x_BTI)), lengths_B)

    def step(self, x_BI, state):
        sum_BD = observe("fading.sum", torch.sigmoid(self.logit_D) * state.sum_BD + self.enter(x_BI))
        return torch.tanh(sum_BD), FadingState(sum_BD, state.count_B + 1)
"""


def write_fading(folder: Path, *, name: str = "fading.py", more: str = "", old: str = "", new: str = "") -> Path:
    """The file, with something more at its end, or something in it replaced."""
    assert old in FADING
    path = folder / name
    path.write_text(FADING.replace(old, new) + more if old else FADING + more)
    return path


def fading(folder: Path) -> CustomMixer:
    return own_mixer(write_fading(folder))
