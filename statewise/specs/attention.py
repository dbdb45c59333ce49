"""Models whose state is a list, as data."""

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

    @property
    def keeps_width(self) -> bool:
        return True

    @property
    def step_grows(self) -> bool:
        return True


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
        "rotary", description="position encoding: none, added vectors, rotary keys, or linear biases on the scores"
    )
    rotary_base: float = Field(
        10_000.0, gt=1, le=1e12, description="of rotary positions: a larger one turns more slowly, for longer texts"
    )
    attention_dropout: float = Field(0.0, ge=0, lt=1, description="on the weights of attention")
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
    def longest(self) -> int | None:
        """Learned positions come to an end."""
        return self.context if self.position == "learned" else None

    @property
    def num_heads(self) -> int:
        most = max(1, self.width // 32)
        return self.heads or max(n for n in range(1, most + 1) if self.width % n == 0)

    @property
    def step_grows(self) -> bool:
        return self.window is None

    @property
    def adds_positions(self) -> bool:
        return self.position in ("learned", "sinusoidal")

    @property
    def keeps_width(self) -> bool:
        return self.residual or self.adds_positions  # vectors that are added have a width

    def reader_input(self, *, bidirectional: bool) -> int | None:
        return self.width if bidirectional else super().reader_input(bidirectional=False)

    def reader_output(self, *, bidirectional: bool) -> int:
        return self.width  # attention sees both ways by itself
