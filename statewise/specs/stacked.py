"""What stands around any mixer, as data: embedding, norm, residual, MLP, dropout, depth, head."""

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from statewise.specs.base import Spec


class StackedSpec(Spec):
    """The part of a model's spec that every mixer shares."""

    learns: ClassVar[Literal["gradient", "counting"]] = "gradient"

    width: int = Field(256, ge=1, description="units per layer")
    depth: int = Field(1, ge=1, description="layers")
    embedding: int | None = Field(None, ge=1, description="width of the token vectors; default: `width`")
    residual: bool = Field(False, description="add each layer's input to its output")
    norm: Literal["none", "layer", "rms"] = Field("none", description="normalise each layer's input")
    norm_place: Literal["pre", "post"] = Field("pre", description="before each sublayer, or after its sum")
    mlp: Literal["none", "relu", "gelu", "swiglu"] = Field("none", description="a sublayer after each mixer")
    mlp_ratio: float = Field(4.0, gt=0, description="hidden width of the MLP, as a multiple of the layer's")
    bias: bool = Field(True, description="biases in the MLP and in attention's projections")
    tie: bool = Field(False, description="the head reuses the embedding matrix")
    dropout: float = Field(0.0, ge=0, lt=1, description="between layers and before the head")
    input_dropout: float = Field(0.0, ge=0, lt=1, description="on the token vectors")
    embedding_dropout: float = Field(0.0, ge=0, lt=1, description="drops whole rows of the embedding")
    variational: bool = Field(False, description="dropout masks are the same at every time step")
    init: Literal["orthogonal", "published", "torch"] = Field("orthogonal", description="initialisation scheme")
    kernel: Literal["auto", "naive", "fused", "batched"] = Field("auto", description="force an implementation")

    @property
    def embedding_width(self) -> int:
        return self.embedding or self.width

    @model_validator(mode="after")
    def _residual_needs_equal_widths(self) -> Self:
        if self.residual and self.embedding_width != self.mixer_output():
            raise ValueError(
                f"residual adds a layer's input to its output, but embedding {self.embedding_width} "
                f"is not the layer's output width {self.mixer_output()}; leave `embedding` out or make them equal"
            )
        return self

    def small(self) -> Self:
        """The same at a small size, for trying the laws."""
        return self.model_copy(update={"width": 12, "depth": 2})

    def sizes(self) -> dict[str, int]:
        """What says how large it is."""
        return {"width": self.width, "depth": self.depth}

    def mixer_output(self) -> int:
        """Width of what one layer gives."""
        return self.width

    def mixer_parameters(self, input_width: int) -> int:
        raise NotImplementedError

    def num_parameters(self, vocab: int) -> int:
        """Parameters of the whole language model, by formula."""
        embedding, out = self.embedding_width, self.mixer_output()
        per_norm = {"none": 0, "rms": 1, "layer": 2}[self.norm]

        def layer(input_width: int) -> int:
            normed = out if self.norm_place == "post" else input_width
            return self.mixer_parameters(input_width) + per_norm * normed

        mixers = layer(embedding) + (self.depth - 1) * layer(out)
        mlps = 0 if self.mlp == "none" else self.depth * (self.mlp_parameters() + per_norm * out)
        final_norm = per_norm * out if self.residual and self.norm_place == "pre" else 0
        if self.tie:
            head = vocab + (out * embedding if out != embedding else 0)
        else:
            head = vocab * out + vocab
        return vocab * embedding + mixers + mlps + final_norm + head

    def mlp_width(self) -> int:
        return max(1, round(self.mlp_ratio * self.mixer_output()))

    def mlp_parameters(self) -> int:
        out, hidden = self.mixer_output(), self.mlp_width()
        inner = 2 if self.mlp == "swiglu" else 1
        return (inner + 1) * out * hidden + (inner * hidden + out if self.bias else 0)
