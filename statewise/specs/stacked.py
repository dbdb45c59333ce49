"""What stands around any mixer, as data: embedding, norm, residual, MLP, dropout, depth, head."""

import math
from collections.abc import Callable
from typing import ClassVar, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from statewise.specs.base import Finer, Spec


def labelling_scale(vocab: int) -> float:
    """Standard deviation of token vectors before training, where a model reads for a label.

    1 for up to a hundred symbols. Of many words most are rare, and large random vectors would be learned by heart.
    """
    return min(1.0, 10 / math.sqrt(vocab))


class StateSize(NamedTuple):
    """Numbers that one row's state holds: real ones, in the model's dtype, and whole ones, of 8 bytes.

    Some of the real ones are sums over time, which are kept in float32 at least.
    """

    real: int
    whole: int = 0
    sums: int = 0

    def bytes(self, itemsize: int) -> int:
        return itemsize * (self.real - self.sums) + max(4, itemsize) * self.sums + 8 * self.whole


class StackedSpec(Spec):
    """The part of a model's spec that every mixer shares."""

    learns: ClassVar[Literal["gradient", "counting"]] = "gradient"
    reads_cells: ClassVar[bool] = False  # a grid as a grid, not row by row
    absorbs_free: ClassVar[bool] = False  # where an output is not wanted, no product is done for it

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

    def finer(self) -> Finer:
        """Hidden units of the MLP, or the width of the token vectors."""
        if self.mlp != "none":
            return Finer("mlp_ratio", self.mlp_width(), 1 / self.mixer_output())
        return Finer("embedding", self.embedding_width)

    def mixer_output(self) -> int:
        """Width of what one layer gives."""
        return self.width

    def mixer_parameters(self, input_width: int) -> int:
        raise NotImplementedError

    def mixer_flops(self, input_width: int, context: int = 0) -> int:
        """FLOPs of one layer's mixer for one more token after `context` of them, in `step`.

        Counted as `torch.utils.flop_counter` does: a product of an m × k with a k × n matrix is 2 m n k, and products
        are all that counts. Biases, gates, norms, softmax, rotations and convolutions channel by channel do not.
        """
        raise NotImplementedError

    def mixer_state(self, input_width: int, context: int = 0) -> StateSize:
        """What one layer's mixer remembers of a row after `context` tokens: a vector, where nothing else is said."""
        return StateSize(self.width)

    def forward_flops(self, vocab: int, context: int = 0) -> int:
        """FLOPs of the whole language model for one more token of one row after `context` of them.

        Products alone, as in `mixer_flops`: mixers, MLPs and the head. Looking up the embedding has none. This
        is `step`; a parallel form that reads many tokens at once may do more work for each, or less.
        """
        return self.stack_flops(self.embedding_width, context) + self.head_flops(vocab)

    def stack_flops(self, input_width: int, context: int = 0) -> int:
        """The layers' part of it."""
        mixers = self.mixer_flops(input_width, context) + (self.depth - 1) * self.mixer_flops(
            self.mixer_output(), context
        )
        return mixers + self.depth * self.mlp_flops()

    def head_flops(self, vocab: int) -> int:
        embedding, out = self.embedding_width, self.mixer_output()
        narrowed = self.tie and out != embedding
        return 2 * out * embedding + 2 * embedding * vocab if narrowed else 2 * out * vocab

    def state_bytes(self, context: int = 0, itemsize: int = 4) -> int:
        """What the whole model remembers of one row after `context` tokens; `itemsize` bytes a real number."""
        return self.stack_bytes(self.embedding_width, context, itemsize)

    def stack_bytes(self, input_width: int, context: int = 0, itemsize: int = 4) -> int:
        """The same of layers that inputs of another width enter."""
        first = self.mixer_state(input_width, context).bytes(itemsize)
        other = self.mixer_state(self.mixer_output(), context).bytes(itemsize)
        return first + (self.depth - 1) * other + self.position_state().bytes(itemsize)

    def position_state(self) -> StateSize:
        """What is remembered below the first layer."""
        return StateSize(0)

    @property
    def keeps_width(self) -> bool:
        """Whether what enters, and what two directions give together, must have the embedding's width."""
        return self.residual

    def num_parameters(self, vocab: int) -> int:
        """Parameters of the whole language model, by formula."""
        embedding = self.embedding_width
        return vocab * embedding + self.stack_parameters(embedding) + self.head_parameters(vocab)

    def stack_parameters(self, input_width: int) -> int:
        """Position, layers and last norm."""
        return self._layers(input_width, self.mixer_output(), self.mixer_parameters)

    def head_parameters(self, vocab: int) -> int:
        embedding, out = self.embedding_width, self.mixer_output()
        if self.tie:
            return vocab + (out * embedding if out != embedding else 0)
        return vocab * out + vocab

    def reader_input(self, *, bidirectional: bool) -> int | None:
        """Width that must enter a reader's layers; None: any will do."""
        return self.embedding_width if self.keeps_width else None

    def reader_output(self, *, bidirectional: bool) -> int:
        """Width of what a reader's layers give: two directions stand side by side, or are joined."""
        return self.mixer_output() * (2 if bidirectional and not self.keeps_width else 1)

    def reader_parameters(self, entry_width: int, *, bidirectional: bool) -> int:
        """Parameters of a reader, all but its entry's own."""
        wanted = self.reader_input(bidirectional=bidirectional) or entry_width
        enter = (entry_width + 1) * wanted if wanted != entry_width else 0
        return enter + (self._both_ways(wanted) if bidirectional else self.stack_parameters(wanted))

    def reader_flops(
        self, entry_width: int, length: float, *, bidirectional: bool = False, end_only: bool = False
    ) -> float:
        """FLOPs of reading `length` positions, all but those of the entry itself. `length` may be a mean.

        `end_only`: of the outputs only the last is wanted, and rows are all of one length.
        """
        wanted = self.reader_input(bidirectional=bidirectional) or entry_width
        enter = 2 * entry_width * wanted if wanted != entry_width else 0
        if bidirectional:
            return length * (enter + self._both_ways_flops(wanted, length))
        each = self._mean(lambda context: self.stack_flops(wanted, context), length)
        if not end_only:
            return length * (enter + each)
        top = wanted if self.depth == 1 else self.mixer_output()
        unasked = self._mean(lambda context: self.mixer_flops(top, context), length) if self.absorbs_free else 0
        return length * (enter + each) - (length - 1) * (self.mlp_flops() + unasked)

    def _both_ways_flops(self, input_width: int, length: float) -> float:
        """At each position: every layer is two mixers, and a map that joins them where the width must stay."""
        out, wide = self.mixer_output(), self.reader_output(bidirectional=True)
        join = 4 * out * out if self.keeps_width else 0

        def two(width: int) -> float:
            return 2 * self._mean(lambda context: self.mixer_flops(width, context), length)

        mixers = two(input_width) + (self.depth - 1) * two(wide)
        return mixers + self.depth * (join + self.mlp_flops(wide))

    @staticmethod
    def _mean(flops: Callable[[int], int], length: float) -> float:
        """Over the positions of a row: FLOPs are linear in what was read before."""
        return flops(0) + (flops(1) - flops(0)) * (length - 1) / 2

    def reader_bytes(self, entry_width: int, context: int = 0, itemsize: int = 4) -> int:
        """What a reader from the first position to the last remembers after `context` of them."""
        return self.stack_bytes(self.reader_input(bidirectional=False) or entry_width, context, itemsize)

    def _both_ways(self, input_width: int) -> int:
        out = self.mixer_output()
        join = 2 * out * out + out if self.keeps_width else 0
        wide = self.reader_output(bidirectional=True)
        return self._layers(input_width, wide, lambda width: 2 * self.mixer_parameters(width) + join)

    def _layers(self, input_width: int, out: int, mixer: Callable[[int], int]) -> int:
        per_norm = {"none": 0, "rms": 1, "layer": 2}[self.norm]

        def layer(width: int) -> int:
            return mixer(width) + per_norm * (out if self.norm_place == "post" else width)

        mixers = layer(input_width) + (self.depth - 1) * layer(out)
        mlps = 0 if self.mlp == "none" else self.depth * (self.mlp_parameters(out) + per_norm * out)
        final_norm = per_norm * out if self.residual and self.norm_place == "pre" else 0
        return mixers + mlps + final_norm

    def mlp_width(self, width: int | None = None) -> int:
        return max(1, round(self.mlp_ratio * (width or self.mixer_output())))

    def mlp_flops(self, width: int | None = None) -> int:
        """Two products, three with a gate; none where there is no MLP."""
        products = {"none": 0, "swiglu": 3}.get(self.mlp, 2)
        return 2 * products * (width or self.mixer_output()) * self.mlp_width(width)

    def mlp_parameters(self, width: int | None = None) -> int:
        out, hidden = width or self.mixer_output(), self.mlp_width(width)
        inner = 2 if self.mlp == "swiglu" else 1
        return (inner + 1) * out * hidden + (inner * hidden + out if self.bias else 0)
