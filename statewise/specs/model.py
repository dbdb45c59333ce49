"""The models as data: one spec per kind, told apart by `kind`; sizes and counts by formula."""

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from statewise.specs.base import Spec


class StackedSpec(Spec):
    """What stands around any mixer: embedding, norm, residual, dropout, depth, head."""

    width: int = Field(256, ge=1, description="units per layer")
    depth: int = Field(1, ge=1, description="layers")
    embedding: int | None = Field(None, ge=1, description="width of the token vectors; default: `width`")
    residual: bool = Field(False, description="add each layer's input to its output")
    norm: Literal["none", "layer", "rms"] = Field("none", description="normalise each layer's input")
    tie: bool = Field(False, description="the head reuses the embedding matrix")
    dropout: float = Field(0.0, ge=0, lt=1, description="between layers and before the head")
    input_dropout: float = Field(0.0, ge=0, lt=1, description="on the token vectors")
    embedding_dropout: float = Field(0.0, ge=0, lt=1, description="drops whole rows of the embedding")
    variational: bool = Field(False, description="dropout masks are the same at every time step")
    init: Literal["orthogonal", "published", "torch"] = Field("orthogonal", description="initialisation scheme")
    kernel: Literal["auto", "naive", "fused"] = Field("auto", description="force an implementation")

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

    def mixer_output(self) -> int:
        """Width of what one layer gives."""
        return self.width

    def mixer_parameters(self, input_width: int) -> int:
        raise NotImplementedError

    def num_parameters(self, vocab: int) -> int:
        """Parameters of the whole language model, by formula."""
        embedding, out = self.embedding_width, self.mixer_output()
        inputs = [embedding] + [out] * (self.depth - 1)
        per_norm = {"none": 0, "rms": 1, "layer": 2}[self.norm]
        mixers = sum(self.mixer_parameters(i) + per_norm * i for i in inputs)
        final_norm = per_norm * out if self.residual else 0
        if self.tie:
            head = vocab + (out * embedding if out != embedding else 0)
        else:
            head = vocab * out + vocab
        return vocab * embedding + mixers + final_norm + head


class ElmanSpec(StackedSpec):
    kind: Literal["elman"] = "elman"
    activation: Literal["tanh", "relu"] = "tanh"
    weight_drop: float = Field(0.0, ge=0, lt=1, description="dropout on the recurrent matrix")
    zoneout: float = Field(0.0, ge=0, lt=1, description="share of units that keep their last value")

    def mixer_parameters(self, input_width: int) -> int:
        d = self.width
        return d * input_width + d * d + d


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


def _default_kind(value: Any) -> Any:
    return {"kind": "lstm", **value} if isinstance(value, dict) else value


ModelSpec = Annotated[
    Annotated[ElmanSpec | GRUSpec | LSTMSpec, Field(discriminator="kind")], BeforeValidator(_default_kind)
]
KINDS: tuple[str, ...] = ("elman", "lstm", "gru")
