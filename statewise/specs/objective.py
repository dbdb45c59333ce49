"""What a model is trained to minimise: over classes, real values or bits, and penalties on its features."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from statewise.specs.base import Spec, default_kind


class CategoricalSpec(Spec):
    kind: Literal["categorical"] = "categorical"
    smoothing: float = Field(0.0, ge=0, lt=1, description="share of the target that is spread over all classes")
    weights: Literal["none", "balanced"] = Field("none", description="balanced: all classes count alike, however rare")


class CRFSpec(Spec):
    """A conditional random field: the whole tag sequence is one outcome."""

    kind: Literal["crf"] = "crf"
    constraint: Literal["auto", "none"] = Field(
        "auto", description="auto: where tags are O, B-… and I-…, I-… only follows its own kind"
    )


class _ObjectiveSpec(Spec):
    of_bits: ClassVar[bool] = False  # values are 0 and 1, and have no mean error
    loss: ClassVar[str] = "nats"  # what the head's own loss counts


class SquaredSpec(_ObjectiveSpec):
    """The squared error of one number, which becomes the mean; no uncertainty."""

    loss: ClassVar[str] = "squared_error"

    kind: Literal["squared"] = "squared"


class GaussianSpec(_ObjectiveSpec):
    """A mean and a scale."""

    kind: Literal["gaussian"] = "gaussian"


class StudentSpec(_ObjectiveSpec):
    """Student's t, with learnt degrees of freedom: outliers are expected, and teach less."""

    kind: Literal["student"] = "student"


class QuantileSpec(_ObjectiveSpec):
    """No family of distributions: quantiles at some levels, by the pinball loss."""

    loss: ClassVar[str] = "pinball"

    kind: Literal["quantile"] = "quantile"
    levels: tuple[float, ...] = Field(
        (0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.975), description="rising, between 0 and 1"
    )

    def model_post_init(self, _: Any) -> None:
        rising = all(before < after for before, after in zip(self.levels, self.levels[1:]))
        if not self.levels or not rising or self.levels[0] <= 0 or self.levels[-1] >= 1:
            raise ValueError(f"levels {list(self.levels)} do not rise between 0 and 1; try [0.1, 0.5, 0.9]")


class BernoulliSpec(_ObjectiveSpec):
    """Every channel is a bit, such as a key of a piano: the nats of a time step are the sum over its bits."""

    of_bits: ClassVar[bool] = True
    loss: ClassVar[str] = "nats_per_frame"

    kind: Literal["bernoulli"] = "bernoulli"


RealObjectiveSpec = Annotated[
    Annotated[SquaredSpec | GaussianSpec | StudentSpec | QuantileSpec | BernoulliSpec, Field(discriminator="kind")],
    default_kind("squared"),
]


class PenaltySpec(Spec):
    """Both are means of squares over the features that the head reads, so neither depends on width, batch or window."""

    size: float = Field(0.0, ge=0, description="times the mean square of the features: they stay small")
    change: float = Field(0.0, ge=0, description="times the mean square of their change per step: they move slowly")

    @property
    def is_free(self) -> bool:
        return not (self.size or self.change)
