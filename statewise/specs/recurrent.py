"""The recurrent models as data."""

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from statewise.specs.stacked import StackedSpec


class ElmanSpec(StackedSpec):
    vector_state: ClassVar[bool] = True

    kind: Literal["elman"] = "elman"
    activation: Literal["tanh", "relu"] = Field("tanh", description="of the recurrent units")
    weight_drop: float = Field(0.0, ge=0, lt=1, description="dropout on the recurrent matrix")
    zoneout: float = Field(0.0, ge=0, lt=1, description="share of units that keep their last value")


class LSTMSpec(StackedSpec):
    vector_state: ClassVar[bool] = True

    kind: Literal["lstm"] = "lstm"
    peephole: bool = Field(False, description="gates see the cell (Gers and Schmidhuber 2000)")
    projection: int | None = Field(None, ge=1, description="width of a projected output (Sak et al. 2014)")
    layer_norm: bool = Field(False, description="normalise inside the recurrence (Ba et al. 2016)")
    coupled: bool = Field(False, description="input gate = 1 - forget gate")
    forget_bias: float = Field(1.0, description="initial bias of the forget gate")
    weight_drop: float = Field(0.0, ge=0, lt=1, description="dropout on the recurrent matrix")
    zoneout: float = Field(0.0, ge=0, lt=1, description="share of units that keep their last value")

    @model_validator(mode="after")
    def _projection_narrows(self) -> Self:
        if self.projection is not None and self.projection >= self.width:
            raise ValueError(
                f"projection {self.projection} must be smaller than width {self.width}: it narrows the output"
            )
        return self

    def mixer_output(self) -> int:
        return self.projection or self.width


class GRUSpec(StackedSpec):
    vector_state: ClassVar[bool] = True

    kind: Literal["gru"] = "gru"
    reset: Literal["after", "before"] = Field(
        "after", description="reset gate after the recurrent product (cuDNN) or before it (Cho et al. 2014)"
    )
    weight_drop: float = Field(0.0, ge=0, lt=1, description="dropout on the recurrent matrix")
    zoneout: float = Field(0.0, ge=0, lt=1, description="share of units that keep their last value")
