"""What a model reads while it learns: the true past, its own, or a mixture that changes with the step."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from statewise.specs.base import Spec


class TeacherForcing(Spec):
    """The truth, at every step: parallel over time where the model is."""

    kind: Literal["teacher"] = "teacher"


class FreeRunning(Spec):
    """After the first symbol, only what the model itself gave."""

    kind: Literal["free"] = "free"
    choice: Literal["sample", "best"] = Field("sample", description="what is fed back: a draw, or the likeliest")


class ScheduledSampling(Spec):
    """A coin for every symbol: the truth with a probability that falls from `start` to `end` (Bengio et al. 2015)."""

    kind: Literal["scheduled"] = "scheduled"
    schedule: Literal["constant", "linear", "exponential", "inverse_sigmoid"] = "linear"
    start: float = Field(1.0, ge=0, le=1, description="probability of the truth before the first step")
    end: float = Field(0.0, ge=0, le=1, description="the probability that the schedule goes towards")
    steps: int = Field(1000, ge=1, description="linear: steps from `start` to `end`")
    k: float = Field(
        0.999, gt=0, description="exponential: factor a step, below 1; inverse_sigmoid: k / (k + exp(step / k)), from 1"
    )
    choice: Literal["sample", "best"] = Field("sample", description="what is fed back: a draw, or the likeliest")

    def model_post_init(self, _: Any) -> None:
        if self.schedule == "exponential" and self.k >= 1:
            raise ValueError(f"k = {self.k:g} is not below 1, so an exponential schedule never falls; try k = 0.999")
        if self.schedule == "inverse_sigmoid" and self.k < 1:
            raise ValueError(f"k = {self.k:g} is below 1, where an inverse sigmoid does not begin near 1; try k = 100")


def _shorthand(value: Any) -> Any:
    """`"teacher"`, `"free"`, `"scheduled"`, or a schedule by its name, `"inverse_sigmoid:200"` with its k or steps."""
    if not isinstance(value, str):
        return {"kind": "scheduled", **value} if isinstance(value, dict) else value
    name, colon, number = value.partition(":")
    if name in ("teacher", "free", "scheduled") and not colon:
        return {"kind": name}
    number_is = {"linear": "steps", "constant": "start", "exponential": "k", "inverse_sigmoid": "k"}
    if name in number_is:
        return {"kind": "scheduled", "schedule": name, **({number_is[name]: number} if colon else {})}
    return {"kind": value}


ForcingSpec = Annotated[
    Annotated[TeacherForcing | FreeRunning | ScheduledSampling, Field(discriminator="kind")],
    BeforeValidator(_shorthand),
]
