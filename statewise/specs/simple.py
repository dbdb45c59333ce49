"""Relatives of Elman's network as data, with their sizes by formula."""

from typing import Literal, Self

from pydantic import Field, model_validator

from statewise.specs.stacked import StackedSpec, StateSize


class LeakySpec(StackedSpec):
    kind: Literal["leaky"] = "leaky"
    leak: Literal["learned", "fixed"] = Field("learned", description="is α, the share that stays, trained?")
    alpha: float | None = Field(
        None, ge=0, lt=1, description="where α starts; default: spread over the units, from short memories to long"
    )
    activation: Literal["tanh", "relu"] = Field("tanh", description="of the recurrent units")

    @model_validator(mode="after")
    def _a_learned_share_is_not_zero(self) -> Self:
        if self.alpha == 0 and self.leak == "learned":
            raise ValueError("alpha 0 cannot be learned away from: choose one above 0, or leak = 'fixed'")
        return self

    def mixer_parameters(self, input_width: int) -> int:
        d = self.width
        return d * input_width + d * d + d + (d if self.leak == "learned" else 0)

    def mixer_flops(self, input_width: int, context: int = 0) -> int:
        return 2 * self.width * (input_width + self.width)


class ReservoirSpec(StackedSpec):
    kind: Literal["reservoir"] = "reservoir"
    radius: float = Field(0.9, gt=0, description="spectral radius of the fixed recurrent matrix")
    density: float = Field(0.2, gt=0, le=1, description="share of that matrix's entries that are not 0")
    alpha: float = Field(0.0, ge=0, lt=1, description="share of the state that stays at each step")
    input_scale: float = Field(1.0, gt=0, description="size of the fixed input weights")
    init: Literal["orthogonal", "published", "torch"] = Field(
        "published", description="how the fixed weights are drawn"
    )

    def mixer_parameters(self, input_width: int) -> int:
        """All of them fixed, and saved like the others."""
        d = self.width
        return d * input_width + d * d + d

    def mixer_flops(self, input_width: int, context: int = 0) -> int:
        """Zeros of the sparse matrix are multiplied like other numbers."""
        return 2 * self.width * (input_width + self.width)


class DeepRNNSpec(StackedSpec):
    kind: Literal["deep_rnn"] = "deep_rnn"
    input_depth: int = Field(2, ge=1, description="layers from the input to the state")
    transition_depth: int = Field(2, ge=1, description="layers from one state to the next")
    output_depth: int = Field(2, ge=1, description="layers from the state to the next token, the head included")
    skip: bool = Field(True, description="the old state also reaches the transition's last layer directly")
    activation: Literal["tanh", "relu"] = Field("tanh", description="of the recurrent units")

    def mixer_parameters(self, input_width: int) -> int:
        d, layer = self.width, self.width * self.width + self.width
        read = d * input_width + d + (self.input_depth - 1) * layer
        transition = self.transition_depth * d * d + (self.transition_depth - 1) * d
        skip = d * d if self.skip and self.transition_depth > 1 else 0
        return read + transition + skip + (self.output_depth - 1) * layer

    def mixer_flops(self, input_width: int, context: int = 0) -> int:
        d, skip = self.width, int(self.skip and self.transition_depth > 1)
        squares = self.input_depth - 1 + self.transition_depth + skip + self.output_depth - 1
        return 2 * d * (input_width + squares * d)


class JordanSpec(StackedSpec):
    kind: Literal["jordan"] = "jordan"
    output: int | None = Field(None, ge=1, description="width of the output that comes back; default: `width`")
    activation: Literal["tanh", "relu"] = Field("tanh", description="of the recurrent units")

    def mixer_output(self) -> int:
        return self.output or self.width

    def mixer_parameters(self, input_width: int) -> int:
        d, out = self.width, self.mixer_output()
        return d * (input_width + out + 1) + out * d + out

    def mixer_flops(self, input_width: int, context: int = 0) -> int:
        return 2 * self.width * (input_width + 2 * self.mixer_output())

    def mixer_state(self, input_width: int, context: int = 0) -> StateSize:
        return StateSize(self.mixer_output())
