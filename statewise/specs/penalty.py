"""What a model pays for beside its surprise (Merity et al. 2017, Revisiting Activation Regularization)."""

from pydantic import Field

from statewise.specs.base import Spec


class PenaltySpec(Spec):
    """Both are means of squares over the features that the head reads, so neither depends on width, batch or window."""

    size: float = Field(0.0, ge=0, description="times the mean square of the features: they stay small")
    change: float = Field(0.0, ge=0, description="times the mean square of their change per step: they move slowly")

    @property
    def is_free(self) -> bool:
        return not (self.size or self.change)
