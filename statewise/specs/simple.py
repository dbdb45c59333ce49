"""Relatives of Elman's network as data."""

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from statewise.specs.stacked import StackedSpec


class LeakySpec(StackedSpec):
    vector_state: ClassVar[bool] = True

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


class ReservoirSpec(StackedSpec):
    vector_state: ClassVar[bool] = True

    kind: Literal["reservoir"] = "reservoir"
    radius: float = Field(0.9, gt=0, description="spectral radius of the fixed recurrent matrix")
    density: float = Field(0.2, gt=0, le=1, description="share of that matrix's entries that are not 0")
    alpha: float = Field(0.0, ge=0, lt=1, description="share of the state that stays at each step")
    input_scale: float = Field(1.0, gt=0, description="size of the fixed input weights")
    init: Literal["orthogonal", "published", "torch"] = Field(
        "published", description="how the fixed weights are drawn"
    )


class DeepRNNSpec(StackedSpec):
    vector_state: ClassVar[bool] = True

    kind: Literal["deep_rnn"] = "deep_rnn"
    input_depth: int = Field(2, ge=1, description="layers from the input to the state")
    transition_depth: int = Field(2, ge=1, description="layers from one state to the next")
    output_depth: int = Field(2, ge=1, description="layers from the state to the next token, the head included")
    skip: bool = Field(True, description="the old state also reaches the transition's last layer directly")
    activation: Literal["tanh", "relu"] = Field("tanh", description="of the recurrent units")


class JordanSpec(StackedSpec):
    vector_state: ClassVar[bool] = True

    kind: Literal["jordan"] = "jordan"
    output: int | None = Field(None, ge=1, description="width of the output that comes back; default: `width`")
    activation: Literal["tanh", "relu"] = Field("tanh", description="of the recurrent units")

    def mixer_output(self) -> int:
        return self.output or self.width
