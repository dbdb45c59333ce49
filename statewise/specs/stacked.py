"""The settings around any mixer: embedding, norm, residual, MLP, dropout, depth, head."""

import math
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from statewise.specs.base import Finer, Spec


def labelling_scale(vocab: int) -> float:
    """Standard deviation of token vectors before training, where a model reads for a label.

    1 for up to a hundred symbols. In large vocabularies most words are rare, and large random vectors would overfit.
    """
    return min(1.0, 10 / math.sqrt(vocab))


class StackedSpec(Spec):
    """The part of a model's spec that every mixer shares."""

    learns: ClassVar[Literal["gradient", "counting"]] = "gradient"
    reads_cells: ClassVar[bool] = False  # a grid as a grid, not row by row
    vector_state: ClassVar[bool] = False  # the state is vectors only, so a summary of a source can be where it begins

    width: int = Field(256, ge=1, description="units per layer")
    depth: int = Field(1, ge=1, description="layers")
    embedding: int | None = Field(None, ge=1, description="width of the token vectors; default: `width`")
    residual: bool = Field(False, description="add each layer's input to its output")
    norm: Literal["none", "layer", "rms"] = Field("none", description="normalise each layer's input")
    norm_epsilon: float | None = Field(
        None, gt=0, le=1, description="added to the variance by norms; default: 1e-5 (layer) or 1e-6 (rms)"
    )
    norm_place: Literal["pre", "post"] = Field("pre", description="before each sublayer, or after its sum")
    mlp: Literal["none", "relu", "gelu", "swiglu"] = Field("none", description="a sublayer after each mixer")
    mlp_ratio: float = Field(4.0, gt=0, description="hidden width of the MLP, as a multiple of the layer's")
    bias: bool = Field(True, description="biases in the MLP and in attention's projections")
    tie: bool = Field(False, description="the head reuses the embedding matrix")
    head_bias: bool = Field(True, description="a bias in the head")
    dropout: float = Field(0.0, ge=0, lt=1, description="between layers and before the head")
    input_dropout: float = Field(0.0, ge=0, lt=1, description="on the token vectors")
    embedding_dropout: float = Field(0.0, ge=0, lt=1, description="drops whole rows of the embedding")
    embedding_scale: float | None = Field(
        None,
        gt=0,
        description="standard deviation of the token vectors before training; "
        "default: 1; 10 / sqrt(vocabulary) where that is less and labels are predicted; 1 / sqrt(width) where `tie`",
    )
    variational: bool = Field(False, description="dropout masks are the same at every time step")
    init: Literal["orthogonal", "published", "torch"] = Field("orthogonal", description="initialisation scheme")
    kernel: Literal["auto", "naive", "fused", "batched", "persistent", "stepped", "triton"] = Field(
        "auto", description="force an implementation"
    )

    @property
    def longest(self) -> int | None:
        """Tokens that can be read at all; None: any number."""
        return None

    @property
    def reach(self) -> int | None:
        """Tokens that the newest output can depend on; None: all."""
        return None

    @property
    def embedding_width(self) -> int:
        return self.embedding or self.width

    @property
    def token_scale(self) -> float:
        """Standard deviation of the token vectors before training, where tokens are predicted (docs/results.md)."""
        # A tied matrix is also the head: unit logits need vectors of unit length, not of unit entries.
        return self.embedding_scale or (1 / math.sqrt(self.embedding_width) if self.tie else 1.0)

    def labelling_scale(self, vocab: int) -> float:
        """The same where labels are predicted; added positions would drown smaller vectors."""
        return self.embedding_scale or (1.0 if self.adds_positions else labelling_scale(vocab))

    @property
    def adds_positions(self) -> bool:
        return False

    @property
    def step_grows(self) -> bool:
        """Whether a step costs more the more was read."""
        return False

    @model_validator(mode="after")
    def _residual_needs_equal_widths(self) -> Self:
        if self.residual and self.embedding_width != self.mixer_output():
            raise ValueError(
                f"residual adds a layer's input to its output, but embedding {self.embedding_width} "
                f"is not the layer's output width {self.mixer_output()}; leave `embedding` out or make them equal"
            )
        return self

    def small(self) -> Self:
        """The same at a small size, to check the laws on."""
        return self.model_copy(update={"width": 12, "depth": 2})

    def own_settings(self) -> dict[str, Any]:
        """Settings that models of other kinds do not have."""
        shared = {"kind", *StackedSpec.model_fields}
        return {name: getattr(self, name) for name in type(self).model_fields if name not in shared}

    def sizes(self) -> dict[str, int]:
        """The settings that determine its size."""
        return {"width": self.width, "depth": self.depth}

    def finer(self) -> Finer:
        """Hidden units of the MLP, or the width of the token vectors."""
        if self.mlp != "none":
            return Finer("mlp_ratio", self.mlp_width(), 1 / self.mixer_output())
        return Finer("embedding", self.embedding_width)

    def mixer_output(self) -> int:
        """Output width of one layer."""
        return self.width

    @property
    def keeps_width(self) -> bool:
        """Whether inputs, and the joined outputs of two directions, must have the embedding's width."""
        return self.residual

    def reader_input(self, *, bidirectional: bool) -> int | None:
        """Width that must enter a reader's layers; None: any will do."""
        return self.embedding_width if self.keeps_width else None

    def reader_output(self, *, bidirectional: bool) -> int:
        """Output width of a reader: two directions are concatenated, or joined by a map."""
        return self.mixer_output() * (2 if bidirectional and not self.keeps_width else 1)

    def mlp_width(self, width: int | None = None) -> int:
        return max(1, round(self.mlp_ratio * (width or self.mixer_output())))
