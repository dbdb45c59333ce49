"""Recurrences that are linear in their state, as data: what came back after the Transformer."""

from typing import Literal, Self

from pydantic import Field, model_validator

from statewise.specs.stacked import StackedSpec, StateSize


class LinearRecurrenceSpec(StackedSpec):
    """These models were published as layers with a way around them and a norm before them."""

    residual: bool = Field(True, description="add each layer's input to its output")
    norm: Literal["none", "layer", "rms"] = Field("rms", description="normalise each layer's input")

    def mixer_state(self, input_width: int, context: int = 0) -> StateSize:
        return StateSize(self.width, sums=self.width)


class MinGRUSpec(LinearRecurrenceSpec):
    kind: Literal["mingru"] = "mingru"
    candidate: Literal["linear", "positive", "tanh"] = Field("linear", description="activation of the candidate")
    keep_bias: float = Field(1.0, description="initial bias towards keeping the state")

    def mixer_parameters(self, input_width: int) -> int:
        return 2 * self.width * (input_width + 1)

    def mixer_flops(self, input_width: int, context: int = 0) -> int:
        return 4 * self.width * input_width


class MinLSTMSpec(LinearRecurrenceSpec):
    kind: Literal["minlstm"] = "minlstm"
    share: bool = Field(True, description="divide both gates by their sum")
    candidate: Literal["linear", "positive", "tanh"] = Field("linear", description="activation of the candidate")
    forget_bias: float = Field(1.0, description="initial bias of the forget gate")

    def mixer_parameters(self, input_width: int) -> int:
        return 3 * self.width * (input_width + 1)

    def mixer_flops(self, input_width: int, context: int = 0) -> int:
        return 6 * self.width * input_width


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

    def matrix_size(self) -> int:
        """Numbers in the matrices of all heads."""
        return self.width * (self.width // self.heads)

    def window_size(self) -> int:
        """Numbers that the convolution still needs."""
        return max(0, self.conv - 1) * 3 * self.width


class LinearAttentionSpec(HeadedSpec):
    kind: Literal["linear_attention"] = "linear_attention"
    feature: Literal["elu", "identity"] = Field("elu", description="φ on keys and queries; identity: no normaliser")

    def mixer_parameters(self, input_width: int) -> int:
        return 3 * self.width * (input_width + self.conv) + self.width * self.width

    def mixer_flops(self, input_width: int, context: int = 0) -> int:
        """The maps; then the sum of key-value products, and the sum of keys beside it, is written to and read."""
        return 6 * self.width * input_width + 2 * self.width**2 + 4 * (self.matrix_size() + self.width)

    def mixer_state(self, input_width: int, context: int = 0) -> StateSize:
        sums = self.matrix_size() + self.width
        return StateSize(sums + self.window_size(), sums=sums)


class GatedDeltaSpec(HeadedSpec):
    kind: Literal["gated_delta"] = "gated_delta"
    decay: bool = Field(True, description="let everything fade; false: the delta rule alone")
    conv: int = Field(4, ge=0, description="taps of a causal convolution before q, k and v; 0: none")
    gate: bool = Field(True, description="multiply what is read by a function of the input")

    def mixer_parameters(self, input_width: int) -> int:
        d, h = self.width, self.heads
        count = 3 * d * input_width + h * input_width + d // h + d * d
        count += h * input_width + 2 * h if self.decay else 0
        count += d * input_width if self.gate else 0
        return count + 3 * d * self.conv

    def mixer_flops(self, input_width: int, context: int = 0) -> int:
        """The maps; then the state is read by the key, written to, and read by the query."""
        d, h = self.width, self.heads
        rows = 3 * d + h + (h if self.decay else 0) + (d if self.gate else 0)
        return 2 * rows * input_width + 2 * d * d + 6 * self.matrix_size()

    def mixer_state(self, input_width: int, context: int = 0) -> StateSize:
        return StateSize(self.matrix_size() + self.window_size(), sums=self.matrix_size())


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

    def mixer_parameters(self, input_width: int) -> int:
        inner, channels = self.expand * self.width, self.expand * self.width + 2 * self.state
        count = channels * input_width + self.heads * (input_width + 2) + 2 * inner + self.width * inner
        count += inner * input_width if self.gate else 0
        return count + channels * self.conv

    def mixer_flops(self, input_width: int, context: int = 0) -> int:
        """The maps; then the state is written to and read."""
        inner = self.expand * self.width
        rows = inner + 2 * self.state + self.heads + (inner if self.gate else 0)
        return 2 * rows * input_width + 2 * self.width * inner + 4 * self.state * inner

    def mixer_state(self, input_width: int, context: int = 0) -> StateSize:
        inner = self.expand * self.width
        sums = self.state * inner
        return StateSize(sums + max(0, self.conv - 1) * (inner + 2 * self.state), sums=sums)
