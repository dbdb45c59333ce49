"""What came before recurrence, as data: the window, and the latent autoregressive model with a free choice of g."""

from typing import ClassVar, Literal

from pydantic import Field

from statewise.specs.stacked import StackedSpec, StateSize


class WindowSpec(StackedSpec):
    absorbs_free: ClassVar[bool] = True

    kind: Literal["window"] = "window"
    order: int = Field(8, ge=1, le=4096, description="inputs that one layer sees, the present one included")
    hidden: int | None = Field(None, ge=1, description="hidden width of the MLP; default: `width`")
    activation: Literal["tanh", "relu", "gelu", "linear"] = Field(
        "tanh", description="linear: the autoregressive model of statistics"
    )

    def mixer_parameters(self, input_width: int) -> int:
        hidden = self.hidden or self.width
        return hidden * (self.order * input_width + 1) + self.width * (hidden + 1)

    def mixer_flops(self, input_width: int, context: int = 0) -> int:
        hidden = self.hidden or self.width
        return 2 * hidden * (self.order * input_width + self.width)

    def mixer_state(self, input_width: int, context: int = 0) -> StateSize:
        return StateSize((self.order - 1) * input_width)


class LatentSpec(StackedSpec):
    kind: Literal["latent"] = "latent"
    transition: Literal["elman", "mlp", "gated"] = Field("mlp", description="which g: h' = g(h, x)")
    hidden: int | None = Field(None, ge=1, description="hidden width of the `mlp` transition; default: `width`")

    def mixer_parameters(self, input_width: int) -> int:
        d, hidden = self.width, self.hidden or self.width
        match self.transition:
            case "elman":
                return d * (input_width + d + 1)
            case "mlp":
                return hidden * (d + input_width + 1) + d * (hidden + 1)
            case "gated":
                return 3 * d * (input_width + d + 1)

    def mixer_flops(self, input_width: int, context: int = 0) -> int:
        d, hidden = self.width, self.hidden or self.width
        match self.transition:
            case "elman":
                return 2 * d * (input_width + d)
            case "mlp":
                return 2 * hidden * (input_width + 2 * d)
            case "gated":
                return 6 * d * (input_width + d)
