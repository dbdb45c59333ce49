"""A model as data: one spec for each kind, chosen by `kind`."""

from typing import Annotated, ClassVar, Literal, Self, get_args

from pydantic import Field

from statewise.specs.base import Spec, default_kind
from statewise.specs.custom import CustomSpec
from statewise.specs.mixer import (
    BasicAttentionSpec,
    DeepRNNSpec,
    ElmanSpec,
    GatedDeltaSpec,
    GRUSpec,
    JordanSpec,
    LatentSpec,
    LeakySpec,
    LinearAttentionSpec,
    LSTMSpec,
    Mamba2Spec,
    MinGRUSpec,
    MinLSTMSpec,
    ReservoirSpec,
    TransformerSpec,
    TTTLinearSpec,
    TTTMLPSpec,
    WindowSpec,
)


class MarkovSpec(Spec):
    kind: Literal["markov"] = "markov"
    learns: ClassVar[Literal["gradient", "counting"]] = "counting"
    step_grows: ClassVar[bool] = False

    order: int = Field(5, ge=1, le=32, description="how many symbols back it looks")
    smoothing: Literal["kneser-ney", "modified", "add-k"] = Field(
        "kneser-ney", description="modified: discounts estimated from the counts (Chen and Goodman 1999)"
    )
    discount: float = Field(0.75, gt=0, lt=1, description="what Kneser-Ney takes from each count")
    add: float = Field(0.01, gt=0, description="the k of add-k")
    lowest: Literal["uniform", "counts"] = Field(
        "uniform",
        description="below single symbols: mix in the uniform distribution, or (as NLTK) nothing, "
        "so that what was never seen is impossible",
    )

    def small(self) -> Self:
        """It is always small."""
        return self

    def sizes(self) -> dict[str, int]:
        """The settings that determine its size."""
        return {"order": self.order}


class GridSpec(Spec):
    """Four scans of a grid, one from each corner, in every layer (Graves et al. 2007)."""

    reads_cells: ClassVar[bool] = True

    kind: Literal["grid"] = "grid"
    width: int = Field(32, ge=1, description="units of one of the four readings")
    depth: int = Field(1, ge=1, description="layers")
    summary: Literal["mean", "max", "corners"] = Field(
        "corners", description="what stands for all cells together; corners: each reading where it ends"
    )
    dropout: float = Field(0.0, ge=0, lt=1, description="between layers and before the head")
    input_dropout: float = Field(0.0, ge=0, lt=1, description="on the cells of the grid")
    init: Literal["orthogonal", "published", "torch"] = Field("orthogonal", description="initialisation scheme")
    kernel: Literal["auto", "naive", "batched"] = Field("auto", description="force an implementation")

    def sizes(self) -> dict[str, int]:
        """The settings that determine its size."""
        return {"width": self.width, "depth": self.depth}


ShippedMixerSpec = (
    LatentSpec
    | WindowSpec
    | ElmanSpec
    | LSTMSpec
    | GRUSpec
    | LeakySpec
    | ReservoirSpec
    | MinGRUSpec
    | MinLSTMSpec
    | BasicAttentionSpec
    | TransformerSpec
    | DeepRNNSpec
    | LinearAttentionSpec
    | JordanSpec
    | GatedDeltaSpec
    | Mamba2Spec
    | TTTLinearSpec
    | TTTMLPSpec
)
# A user's own class has no kind of its own: it is passed in.
AnyMixerSpec = ShippedMixerSpec | CustomSpec
AnyModelSpec = MarkovSpec | AnyMixerSpec
KINDS: tuple[str, ...] = tuple(spec.model_fields["kind"].default for spec in (MarkovSpec, *get_args(ShippedMixerSpec)))


# What layers can be made of; and any model at all.
MixerSpec = Annotated[Annotated[AnyMixerSpec, Field(discriminator="kind")], default_kind("lstm")]
ModelSpec = Annotated[Annotated[AnyModelSpec, Field(discriminator="kind")], default_kind("lstm")]
