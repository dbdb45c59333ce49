"""Recurrences that are linear in their state, as data: what came back after the Transformer."""

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from statewise.specs.stacked import StackedSpec


class LinearRecurrenceSpec(StackedSpec):
    """These models were published as layers with a way around them and a norm before them."""

    residual: bool = Field(True, description="add each layer's input to its output")
    norm: Literal["none", "layer", "rms"] = Field("rms", description="normalise each layer's input")


class MinGRUSpec(LinearRecurrenceSpec):
    vector_state: ClassVar[bool] = True

    kind: Literal["mingru"] = "mingru"
    candidate: Literal["linear", "positive", "tanh"] = Field("linear", description="activation of the candidate")
    keep_bias: float = Field(1.0, description="initial bias towards keeping the state")


class MinLSTMSpec(LinearRecurrenceSpec):
    vector_state: ClassVar[bool] = True

    kind: Literal["minlstm"] = "minlstm"
    share: bool = Field(True, description="divide both gates by their sum")
    candidate: Literal["linear", "positive", "tanh"] = Field("linear", description="activation of the candidate")
    forget_bias: float = Field(1.0, description="initial bias of the forget gate")


class HeadedSpec(LinearRecurrenceSpec):
    """Layers whose state is a matrix per head."""

    heads: int = Field(2, ge=1, description="states side by side, each with a share of the width")
    conv: int = Field(0, ge=0, description="taps of a causal convolution before q, k and v; 0: none")

    @model_validator(mode="after")
    def _sizes_fit(self) -> Self:
        if self.conv == 1:
            raise ValueError("conv 1 sees the present time step alone; use 0 for none, or at least 2 taps")
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is not a multiple of heads {self.heads}; change one of the two")
        return self


class LinearAttentionSpec(HeadedSpec):
    kind: Literal["linear_attention"] = "linear_attention"
    feature: Literal["elu", "identity"] = Field("elu", description="φ on keys and queries; identity: no normaliser")


class GatedDeltaSpec(HeadedSpec):
    kind: Literal["gated_delta"] = "gated_delta"
    decay: bool = Field(True, description="let everything fade; false: the delta rule alone")
    conv: int = Field(4, ge=0, description="taps of a causal convolution before q, k and v; 0: none")
    gate: bool = Field(True, description="multiply what is read by a function of the input")


class Mamba2Spec(LinearRecurrenceSpec):
    kind: Literal["mamba2"] = "mamba2"
    heads: int = Field(2, ge=1, description="states side by side, each with a share of the inner width")
    state: int = Field(16, ge=1, description="numbers each inner unit remembers")
    expand: int = Field(2, ge=1, description="inner width, as a multiple of the width")
    conv: int = Field(4, ge=0, description="taps of a causal convolution before the recurrence; 0: none")
    gate: bool = Field(True, description="multiply what is read by a function of the input")

    @model_validator(mode="after")
    def _sizes_fit(self) -> Self:
        if self.conv == 1:
            raise ValueError("conv 1 sees the present time step alone; use 0 for none, or at least 2 taps")
        if self.expand * self.width % self.heads:
            inner = self.expand * self.width
            raise ValueError(f"inner width {inner} is not a multiple of heads {self.heads}; change one of the two")
        return self
