"""Models whose state is a list, as data, with their sizes by formula."""

from typing import Literal, Self

from pydantic import Field, model_validator

from statewise.specs.stacked import StackedSpec


class BasicAttentionSpec(StackedSpec):
    kind: Literal["basic_attention"] = "basic_attention"

    @model_validator(mode="after")
    def _no_map_changes_the_width(self) -> Self:
        if self.embedding_width != self.width:
            raise ValueError(
                f"outputs are means of inputs, so embedding {self.embedding_width} must be width {self.width}; "
                "leave `embedding` out"
            )
        return self

    def mixer_parameters(self, input_width: int) -> int:
        return 0


class TransformerSpec(StackedSpec):
    kind: Literal["transformer"] = "transformer"
    depth: int = Field(2, ge=1, description="layers")
    residual: bool = Field(True, description="add each sublayer's input to its output")
    norm: Literal["none", "layer", "rms"] = Field("layer", description="normalise each sublayer")
    mlp: Literal["none", "relu", "gelu", "swiglu"] = Field("gelu", description="the sublayer after attention")
    heads: int | None = Field(None, ge=1, description="heads of queries; default: one for each 32 units")
    kv_heads: int | None = Field(
        None, ge=1, description="heads of keys and values (grouped-query attention); default: `heads`"
    )
    window: int | None = Field(None, ge=1, description="see only so many newest entries, so that the state is bounded")
    position: Literal["none", "learned", "sinusoidal", "rotary", "alibi"] = Field(
        "rotary", description="how order is told: not at all, added vectors, turned keys, sloping scores"
    )
    context: int = Field(1024, ge=1, description="positions that position = 'learned' has vectors for")

    @model_validator(mode="after")
    def _heads_share_out_the_width(self) -> Self:
        if self.width % self.num_heads:
            fitting = [n for n in range(1, self.width + 1) if self.width % n == 0]
            raise ValueError(
                f"width {self.width} is not a multiple of heads {self.num_heads}; "
                f"heads that fit: {', '.join(map(str, fitting))}"
            )
        if self.kv_heads is not None and self.num_heads % self.kv_heads:
            raise ValueError(f"heads {self.num_heads} is not a multiple of kv_heads {self.kv_heads}")
        return self

    @property
    def num_heads(self) -> int:
        most = max(1, self.width // 32)
        return self.heads or max(n for n in range(1, most + 1) if self.width % n == 0)

    def mixer_parameters(self, input_width: int) -> int:
        d = self.width
        rows = d + 2 * (self.kv_heads or self.num_heads) * (d // self.num_heads)
        return rows * input_width + d * d + (rows + d if self.bias else 0)

    def num_parameters(self, vocab: int) -> int:
        added = self.context * self.embedding_width if self.position == "learned" else 0
        return super().num_parameters(vocab) + added
