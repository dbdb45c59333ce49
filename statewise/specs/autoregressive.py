"""What came before recurrence, as data: the window, and the latent autoregressive model with a free choice of g."""

from typing import ClassVar, Literal

from pydantic import Field

from statewise.specs.stacked import StackedSpec


class WindowSpec(StackedSpec):
    kind: Literal["window"] = "window"
    order: int = Field(8, ge=1, le=4096, description="inputs that one layer sees, the present one included")
    hidden: int | None = Field(None, ge=1, description="hidden width of the MLP; default: `width`")
    activation: Literal["tanh", "relu", "gelu", "linear"] = Field(
        "tanh", description="linear: the autoregressive model of statistics"
    )


class LatentSpec(StackedSpec):
    vector_state: ClassVar[bool] = True

    kind: Literal["latent"] = "latent"
    transition: Literal["elman", "mlp", "gated"] = Field("mlp", description="which g: h' = g(h, x)")
    hidden: int | None = Field(None, ge=1, description="hidden width of the `mlp` transition; default: `width`")
