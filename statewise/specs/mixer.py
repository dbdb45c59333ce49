"""One spec for each kind of mixer, with the settings that only it has."""

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from statewise.specs.base import Spec
from statewise.specs.stacked import StackedSpec


class VectorSpec(StackedSpec):
    """Mixers whose state is vectors."""

    vector_state: ClassVar[bool] = True


class ElmanSpec(VectorSpec):
    kind: Literal["elman"] = "elman"
    activation: Literal["tanh", "relu"] = Field("tanh", description="of the recurrent units")
    weight_drop: float = Field(0.0, ge=0, lt=1, description="dropout on the recurrent matrix")
    zoneout: float = Field(0.0, ge=0, lt=1, description="share of units that keep their last value")


class LSTMSpec(VectorSpec):
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


class GRUSpec(VectorSpec):
    kind: Literal["gru"] = "gru"
    reset: Literal["after", "before"] = Field(
        "after", description="reset gate after the recurrent product (cuDNN) or before it (Cho et al. 2014)"
    )
    weight_drop: float = Field(0.0, ge=0, lt=1, description="dropout on the recurrent matrix")
    zoneout: float = Field(0.0, ge=0, lt=1, description="share of units that keep their last value")


class LeakySpec(VectorSpec):
    kind: Literal["leaky"] = "leaky"
    leak: Literal["learned", "fixed"] = Field("learned", description="is α, the share that stays, trained?")
    alpha: float | None = Field(
        None, ge=0, lt=1, description="where α starts; default: spread over the units, from short memories to long"
    )
    activation: Literal["tanh", "relu"] = Field("tanh", description="of the recurrent units")

    @model_validator(mode="after")
    def _a_learned_share_is_not_zero(self) -> Self:
        if self.alpha == 0 and self.leak == "learned":
            raise ValueError("alpha 0 cannot be learned away from: choose one above 0, or leak = 'fixed'")
        return self


class ReservoirSpec(VectorSpec):
    kind: Literal["reservoir"] = "reservoir"
    radius: float = Field(0.9, gt=0, description="spectral radius of the fixed recurrent matrix")
    density: float = Field(0.2, gt=0, le=1, description="share of that matrix's entries that are not 0")
    alpha: float = Field(0.0, ge=0, lt=1, description="share of the state that stays at each step")
    input_scale: float = Field(1.0, gt=0, description="size of the fixed input weights")
    init: Literal["orthogonal", "published", "torch"] = Field(
        "published", description="how the fixed weights are drawn"
    )


class DeepRNNSpec(VectorSpec):
    kind: Literal["deep_rnn"] = "deep_rnn"
    input_depth: int = Field(2, ge=1, description="layers from the input to the state")
    transition_depth: int = Field(2, ge=1, description="layers from one state to the next")
    output_depth: int = Field(2, ge=1, description="layers from the state to the next token, the head included")
    skip: bool = Field(True, description="the old state also reaches the transition's last layer directly")
    activation: Literal["tanh", "relu"] = Field("tanh", description="of the recurrent units")


class JordanSpec(VectorSpec):
    kind: Literal["jordan"] = "jordan"
    feedback: Literal["truth", "output"] = Field(
        "truth",
        description="what comes back in a language model: the token that is read, known in advance in training, "
        "or the predicted distribution, trained through time",
    )
    output: int | None = Field(
        None, ge=1, description="in other tasks, width of the output vector that comes back; default: `width`"
    )
    activation: Literal["tanh", "relu"] = Field("tanh", description="of the recurrent units")

    def mixer_output(self) -> int:
        return self.output or self.width


class WindowSpec(StackedSpec):
    kind: Literal["window"] = "window"
    order: int = Field(8, ge=1, le=4096, description="inputs that one layer sees, the present one included")
    hidden: int | None = Field(None, ge=1, description="hidden width of the MLP; default: `width`")
    activation: Literal["tanh", "relu", "gelu", "linear"] = Field(
        "tanh", description="linear: the autoregressive model of statistics"
    )

    @property
    def reach(self) -> int | None:
        return self.depth * (self.order - 1) + 1


class LatentSpec(VectorSpec):
    kind: Literal["latent"] = "latent"
    transition: Literal["elman", "mlp", "gated"] = Field("mlp", description="which g: h' = g(h, x)")
    hidden: int | None = Field(None, ge=1, description="hidden width of the `mlp` transition; default: `width`")


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


class RotaryScaling(Spec):
    """Slower turns of rotary positions, for texts longer than those of training."""

    kind: Literal["linear", "llama3", "yarn"] = Field(
        description="all turns, or the slow ones (Llama 3.1; YaRN, Peng et al. 2023)"
    )
    factor: float = Field(ge=1, description="how many times slower")
    context: int = Field(0, ge=0, description="positions in training, before the scaling; not of kind = 'linear'")
    slow: float = Field(1.0, gt=0, description="what turns less often in them is slowed down by all of the factor")
    fast: float = Field(
        default_factory=lambda known: 32.0 if known.get("kind") == "yarn" else 4.0,
        gt=0,
        description="what turns more often stays; default: 4 (llama3), 32 (yarn)",
    )

    @model_validator(mode="after")
    def _knows_its_context(self) -> Self:
        if (self.kind == "linear") != (self.context == 0):
            raise ValueError(
                "rotary_scaling.context is of kind = 'llama3' and 'yarn', which need it; 'linear' does not have it"
            )
        if self.slow >= self.fast:
            raise ValueError(f"rotary_scaling.slow {self.slow:g} must be less than rotary_scaling.fast {self.fast:g}")
        return self


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
    head_width: int | None = Field(None, ge=1, description="units of a head; default: `width` divided by `heads`")
    query_key_norm: bool = Field(False, description="RMS norm of each head's queries and keys (Henry et al. 2020)")
    window: int | None = Field(None, ge=1, description="see only so many newest entries, so that the state is bounded")
    position: Literal["none", "learned", "sinusoidal", "rotary", "alibi"] = Field(
        "rotary", description="position encoding: none, added vectors, rotary keys, or linear biases on the scores"
    )
    rotary_base: float = Field(
        10_000.0, gt=1, le=1e12, description="of rotary positions: a larger one turns more slowly, for longer texts"
    )
    rotary_scaling: RotaryScaling | None = Field(None, description="slower turns than those of training")
    attention_dropout: float = Field(0.0, ge=0, lt=1, description="on the weights of attention")
    context: int = Field(1024, ge=1, description="positions that position = 'learned' has vectors for")

    @model_validator(mode="after")
    def _heads_share_out_the_width(self) -> Self:
        if self.head_width is None and self.width % self.num_heads:
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
        """Learned positions are limited."""
        return self.context if self.position == "learned" else None

    @property
    def reach(self) -> int | None:
        return None if self.window is None else self.depth * (self.window - 1) + 1

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


class LinearRecurrenceSpec(StackedSpec):
    """These models were published with residual connections and pre-norm."""

    residual: bool = Field(True, description="add each layer's input to its output")
    norm: Literal["none", "layer", "rms"] = Field("rms", description="normalise each layer's input")


class MinGRUSpec(LinearRecurrenceSpec):
    vector_state: ClassVar[bool] = True

    kind: Literal["mingru"] = "mingru"
    candidate: Literal["linear", "positive", "tanh"] = Field("linear", description="activation of the candidate")
    keep_bias: float = Field(1.0, description="initial bias towards keeping the state")


class MinLSTMSpec(LinearRecurrenceSpec):
    vector_state: ClassVar[bool] = True

    kind: Literal["minlstm"] = "minlstm"
    share: bool = Field(True, description="divide both gates by their sum")
    candidate: Literal["linear", "positive", "tanh"] = Field("linear", description="activation of the candidate")
    forget_bias: float = Field(1.0, description="initial bias of the forget gate")


class HeadedSpec(LinearRecurrenceSpec):
    """Layers whose state is a matrix per head."""

    heads: int = Field(2, ge=1, description="states side by side, each with a share of the width")
    conv: int = Field(0, ge=0, description="taps of a causal convolution before q, k and v; 0: none")

    @model_validator(mode="after")
    def _sizes_fit(self) -> Self:
        if self.conv == 1:
            raise ValueError("conv 1 sees the present time step alone; use 0 for none, or at least 2 taps")
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is not a multiple of heads {self.heads}; change one of the two")
        return self


class LinearAttentionSpec(HeadedSpec):
    kind: Literal["linear_attention"] = "linear_attention"
    feature: Literal["elu", "identity"] = Field("elu", description="φ on keys and queries; identity: no normaliser")


class GatedDeltaSpec(HeadedSpec):
    kind: Literal["gated_delta"] = "gated_delta"
    decay: bool = Field(True, description="let everything fade; false: the delta rule alone")
    conv: int = Field(4, ge=0, description="taps of a causal convolution before q, k and v; 0: none")
    gate: bool = Field(True, description="multiply what is read by a function of the input")


class Mamba2Spec(LinearRecurrenceSpec):
    kind: Literal["mamba2"] = "mamba2"
    heads: int = Field(2, ge=1, description="states side by side, each with a share of the inner width")
    state: int = Field(16, ge=1, description="numbers each inner unit remembers")
    expand: int = Field(2, ge=1, description="inner width, as a multiple of the width")
    conv: int = Field(4, ge=0, description="taps of a causal convolution before the recurrence; 0: none")
    conv_bias: bool = Field(False, description="a bias after that convolution")
    gate: bool = Field(True, description="multiply what is read by a function of the input")
    skip: Literal["unit", "head"] = Field(
        "unit", description="the weight of the input in the output: one an inner unit, or one a head as published"
    )

    @model_validator(mode="after")
    def _sizes_fit(self) -> Self:
        if self.conv == 1:
            raise ValueError("conv 1 sees the present time step alone; use 0 for none, or at least 2 taps")
        if self.expand * self.width % self.heads:
            inner = self.expand * self.width
            raise ValueError(f"inner width {inner} is not a multiple of heads {self.heads}; change one of the two")
        return self


class TTTSpec(HeadedSpec):
    """What the two inner models share."""

    inner_norm: bool = Field(True, description="the inner model is x + norm(...); false: the bare map")
    mini_batch: int = Field(16, ge=1, description="tokens whose gradients are taken at the same weights; 1: online")


class TTTLinearSpec(TTTSpec):
    kind: Literal["ttt_linear"] = "ttt_linear"
    rate: float = Field(1.0, gt=0, description="largest inner learning rate, before it is divided by a head's width")


class TTTMLPSpec(TTTSpec):
    kind: Literal["ttt_mlp"] = "ttt_mlp"
    rate: float = Field(0.1, gt=0, description="largest inner learning rate, before it is divided by a head's width")
    ratio: int = Field(4, ge=1, description="hidden width of the inner model, as a multiple of a head's")
