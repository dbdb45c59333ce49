"""The recurrent models as data, with their sizes by formula."""

from typing import Literal, Self

from pydantic import Field, model_validator

from statewise.specs.stacked import StackedSpec, StateSize


class ElmanSpec(StackedSpec):
    kind: Literal["elman"] = "elman"
    activation: Literal["tanh", "relu"] = Field("tanh", description="of the recurrent units")
    weight_drop: float = Field(0.0, ge=0, lt=1, description="dropout on the recurrent matrix")
    zoneout: float = Field(0.0, ge=0, lt=1, description="share of units that keep their last value")

    def mixer_parameters(self, input_width: int) -> int:
        d = self.width
        return d * input_width + d * d + d

    def mixer_flops(self, input_width: int, context: int = 0) -> int:
        return 2 * self.width * (input_width + self.width)


class LSTMSpec(StackedSpec):
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

    def mixer_parameters(self, input_width: int) -> int:
        d, out = self.width, self.mixer_output()
        gates = 3 if self.coupled else 4
        count = gates * d * (input_width + out + 1)
        count += (2 if self.coupled else 3) * d if self.peephole else 0
        count += out * d if self.projection else 0
        count += 2 * gates * d + 2 * d if self.layer_norm else 0
        return count

    def mixer_flops(self, input_width: int, context: int = 0) -> int:
        d, out = self.width, self.mixer_output()
        gates = 3 if self.coupled else 4
        return 2 * gates * d * (input_width + out) + (2 * out * d if self.projection else 0)

    def mixer_state(self, input_width: int, context: int = 0) -> StateSize:
        return StateSize(self.mixer_output() + self.width)


class GRUSpec(StackedSpec):
    kind: Literal["gru"] = "gru"
    reset: Literal["after", "before"] = Field(
        "after", description="reset gate after the recurrent product (cuDNN) or before it (Cho et al. 2014)"
    )
    weight_drop: float = Field(0.0, ge=0, lt=1, description="dropout on the recurrent matrix")
    zoneout: float = Field(0.0, ge=0, lt=1, description="share of units that keep their last value")

    def mixer_parameters(self, input_width: int) -> int:
        d = self.width
        return 3 * d * (input_width + d + 1) + (d if self.reset == "after" else 0)

    def mixer_flops(self, input_width: int, context: int = 0) -> int:
        return 6 * self.width * (input_width + self.width)
