"""Models whose state is a list, as data, with their sizes by formula."""

from typing import Literal, Self

from pydantic import Field, model_validator

from statewise.specs.stacked import StackedSpec, StateSize


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

    def mixer_parameters(self, input_width: int) -> int:
        return 0

    def mixer_flops(self, input_width: int, context: int = 0) -> int:
        """Scores with everything read, the new token included, and the mean of it."""
        return 4 * self.width * (context + 1)

    def mixer_state(self, input_width: int, context: int = 0) -> StateSize:
        return StateSize(context * self.width, 1)


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

    def mixer_parameters(self, input_width: int) -> int:
        d = self.width
        rows = d + self.list_width()
        return rows * input_width + d * d + (rows + d if self.bias else 0)

    def mixer_flops(self, input_width: int, context: int = 0) -> int:
        """The maps; then scores with all slots, and the mean of their values. A window's slots are always all there."""
        slots = context + 1 if self.window is None else self.window
        return 2 * (self.width + self.list_width()) * input_width + 2 * self.width**2 + 4 * self.width * slots

    def mixer_state(self, input_width: int, context: int = 0) -> StateSize:
        slots = context if self.window is None else self.window - 1
        return StateSize(slots * self.list_width(), 1)

    @property
    def adds_positions(self) -> bool:
        return self.position in ("learned", "sinusoidal")

    def position_state(self) -> StateSize:
        return StateSize(0, 1 if self.adds_positions else 0)

    def list_width(self) -> int:
        """Numbers that a token leaves in one layer's list: a key and a value for each of their heads."""
        return 2 * (self.kv_heads or self.num_heads) * (self.width // self.num_heads)

    @property
    def keeps_width(self) -> bool:
        return self.residual or self.adds_positions  # vectors that are added have a width

    def stack_parameters(self, input_width: int) -> int:
        added = self.context * self.embedding_width if self.position == "learned" else 0
        return super().stack_parameters(input_width) + added

    def reader_input(self, *, bidirectional: bool) -> int | None:
        return self.width if bidirectional else super().reader_input(bidirectional=False)

    def reader_output(self, *, bidirectional: bool) -> int:
        return self.width  # attention sees both ways by itself

    def _both_ways_flops(self, input_width: int, length: float) -> float:
        """Every position sees all of them."""
        first, second = (self.stack_flops(input_width, context) for context in (0, 1))
        return first + (second - first) * (length - 1)

    def _both_ways(self, input_width: int) -> int:
        added = self.context * self.width if self.position == "learned" else 0
        return super().stack_parameters(input_width) + added
