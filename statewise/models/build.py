"""From a spec to a module: mixers, stacks and language models."""

from collections.abc import Mapping
from typing import Any, SupportsIndex, assert_never

import torch

from statewise.core import Mixer
from statewise.kernels.rotary import Scaling
from statewise.layers import MLP, Around, Dropout, Embedding, Norm, make_norm
from statewise.mixers import (
    GRU,
    LSTM,
    TTT,
    Attention,
    BasicAttention,
    DeepRNN,
    Elman,
    GatedDelta,
    Jordan,
    Latent,
    Leaky,
    LinearAttention,
    Mamba2,
    MinGRU,
    MinLSTM,
    Reservoir,
    SlidingAttention,
    Window,
)
from statewise.models.add_position import AddPosition
from statewise.models.custom import CustomMixer, own_mixer
from statewise.models.head import CategoricalHead
from statewise.models.jordan import HiddenLayer, JordanLanguageModel
from statewise.models.language_model import LanguageModel
from statewise.models.markov import Markov
from statewise.models.stack import Block, Stack
from statewise.models.token_machine import TokenMachine
from statewise.specs import (
    BasicAttentionSpec,
    CustomSpec,
    DeepRNNSpec,
    ElmanSpec,
    GatedDeltaSpec,
    GRUSpec,
    JordanSpec,
    LanguageModelSpec,
    LatentSpec,
    LeakySpec,
    LinearAttentionSpec,
    LSTMSpec,
    Mamba2Spec,
    MarkovSpec,
    MinGRUSpec,
    MinLSTMSpec,
    MixerSpec,
    ModelSpec,
    ReservoirSpec,
    StackedSpec,
    TransformerSpec,
    TTTLinearSpec,
    TTTMLPSpec,
    UserError,
    WindowSpec,
    nearest,
    parse_spec,
)


def build(
    model: "str | ModelSpec | type[Mixer[Any]]" = "lstm",
    *,
    vocab: int,
    seed: int = 0,
    width: int | None = None,
    depth: int | None = None,
    heads: int | None = None,
    dropout: float | None = None,
    tie: bool | None = None,
    **more: Any,
) -> TokenMachine[Any]:
    """A language model: `[B, T]` token numbers in, `[B, T, vocab]` logits and a state out.

    `model` is a name from `sw.LINEAGE` with options, a spec that holds them, or a mixer class of your own
    (`build(EMA, vocab=65, decay=0.9)`). Common options are the `width` and `depth` of the layers, `heads`, `dropout`,
    and `tie` (the head reuses the embedding); None is the model's default.
    `more` takes every other option of the spec or of your class; an unknown one raises an error that names those there
    are. The weights depend on the seed alone.

    >>> model = sw.build("lstm", vocab=65, width=16, depth=2)
    >>> logits, state = model(torch.tensor([[1, 2, 3]]))
    >>> logits.shape
    torch.Size([1, 3, 65])
    >>> logits, state = model(torch.tensor([[4]]), state)  # goes on where it stopped
    """
    common = {"width": width, "depth": depth, "heads": heads, "dropout": dropout, "tie": tie}
    options = {**{name: value for name, value in common.items() if value is not None}, **more}
    spec: ModelSpec
    if isinstance(model, type):
        spec = custom_spec(own_mixer(model), options)
    elif isinstance(model, str):
        parsed = parse_spec({"model": {"kind": model, **options}}, source=f"build({model!r}, ...)")
        assert isinstance(parsed, LanguageModelSpec)
        spec = parsed.model
    elif options:
        raise UserError(f"options {sorted(options)} go with a name, not with a spec that already holds them")
    elif isinstance(model, MarkovSpec | StackedSpec):
        spec = model
    else:
        raise UserError(f"model is {model!r}, expected a name, a spec or a mixer class", fix='for example "lstm"')
    if isinstance(vocab, bool) or not isinstance(vocab, SupportsIndex) or vocab < 1:
        raise UserError(f"vocab is {vocab!r}, expected a whole number of at least 1")
    if isinstance(spec, MarkovSpec):
        return Markov(vocab, **spec.model_dump(exclude={"kind"}))
    generator = torch.Generator().manual_seed(seed)
    embedding = Embedding(
        vocab, spec.embedding_width, row_dropout=spec.embedding_dropout, scale=spec.token_scale, generator=generator
    )
    if isinstance(spec, JordanSpec):
        return build_jordan(spec, embedding, generator=generator)
    stack, width = build_stack(spec, input_width=spec.embedding_width, generator=generator)
    return LanguageModel(
        embedding=embedding,
        input_dropout=Dropout(spec.input_dropout, variational=spec.variational),
        stack=stack,
        head=CategoricalHead(
            width, vocab, tie=embedding if spec.tie else None, bias=spec.head_bias, generator=generator
        ),
    )


def build_jordan(spec: JordanSpec, embedding: Embedding, *, generator: torch.Generator) -> JordanLanguageModel:
    """The output of a language model is over its vocabulary; hidden layers have no memory of their own."""
    if spec.output is not None:
        raise UserError(
            f"model.output = {spec.output}, but the output of a Jordan language model is the next token",
            fix="leave `output` out",
        )
    blocks: list[Block[Any]] = []
    for input_width in (spec.embedding_width, *[spec.width] * (spec.depth - 1)):
        layer = HiddenLayer(
            spec.width, input_width=input_width, activation=spec.activation, init=spec.init, generator=generator
        )
        blocks.append(Block(layer, build_around(spec, input_width, spec.width, generator=generator)))
    vocab = len(embedding.weight)
    return JordanLanguageModel(
        embedding=embedding,
        input_dropout=Dropout(spec.input_dropout, variational=spec.variational),
        stack=Stack(blocks, final_norm=build_last_norm(spec, spec.width)),
        head=CategoricalHead(spec.width, vocab, tie=embedding if spec.tie else None, generator=generator),
        forced=spec.feedback == "truth",
        init=spec.init,
        kernel=spec.kernel,
        generator=generator,
    )


def custom_spec(own: CustomMixer, options: Mapping[str, Any]) -> CustomSpec:
    """The spec of a user's class. `options` are settings that every model has, and those of the class itself."""
    shared = {name: value for name, value in options.items() if name in CustomSpec.model_fields}
    its = {name: value for name, value in options.items() if name not in shared}
    for name in its:
        if name not in own.options.model_fields:
            known = {*own.options.model_fields, *StackedSpec.model_fields}
            raise UserError(f"{name!r} is neither an option of {own.name} nor a setting", fix=nearest(name, known))
    table = {"kind": "custom", "mixer": own.name, "options": its, **shared}
    spec = parse_spec({"model": table}, source=f"build({own.name}, ...)", mixers=[own]).model
    assert isinstance(spec, CustomSpec)
    return spec


def build_stack(spec: MixerSpec, *, input_width: int, generator: torch.Generator | None = None) -> tuple[Stack, int]:
    """Position, blocks and last norm, as the spec says; and the width of what comes out."""
    position = build_position(spec, generator=generator)
    blocks: list[Block[Any]] = []
    width = input_width
    for _ in range(spec.depth):
        mixer = build_mixer(spec, input_width=width, generator=generator)
        blocks.append(Block(mixer, build_around(spec, width, mixer.output_width, generator=generator)))
        width = mixer.output_width
    return Stack(blocks, final_norm=build_last_norm(spec, width), position=position), width


def build_around(spec: MixerSpec, width: int, out: int, *, generator: torch.Generator | None) -> Around:
    """For a mixer from `width` to `out`."""
    mlp = None
    if spec.mlp != "none":
        mlp = MLP(out, hidden=spec.mlp_width(out), kind=spec.mlp, bias=spec.bias, generator=generator)
    norm = make_norm(spec.norm, width if spec.norm_place == "pre" else out, epsilon=spec.norm_epsilon)
    dropout = Dropout(spec.dropout, variational=spec.variational)
    mlp_norm = None if mlp is None else make_norm(spec.norm, out, epsilon=spec.norm_epsilon)
    return Around(norm, dropout, spec.residual, spec.norm_place, mlp, mlp_norm)


def build_last_norm(spec: MixerSpec, width: int) -> Norm:
    """After the last layer: with pre-norm residual layers their sum is not normalised."""
    kind = spec.norm if spec.residual and spec.norm_place == "pre" else "none"
    return make_norm(kind, width, epsilon=spec.norm_epsilon)


def build_position(spec: MixerSpec, *, generator: torch.Generator | None = None) -> AddPosition | None:
    """Position vectors added to the token vectors, for models that need them."""
    match spec:
        case TransformerSpec(position="learned" | "sinusoidal" as kind):
            return AddPosition(
                spec.embedding_width, kind=kind, context=spec.context, scale=spec.token_scale, generator=generator
            )
        case _:
            return None


def build_mixer(
    spec: MixerSpec, *, input_width: int | None = None, generator: torch.Generator | None = None
) -> Mixer[Any]:
    """One mixer, as the spec says."""
    shared: dict[str, Any] = {
        "input_width": input_width,
        "init": spec.init,
        "kernel": spec.kernel,
        "generator": generator,
    }
    own: dict[str, Any] = spec.own_settings()
    match spec:
        case ElmanSpec():
            return Elman(spec.width, **own, **shared)
        case LSTMSpec():
            return LSTM(spec.width, **own, **shared)
        case GRUSpec():
            return GRU(spec.width, **own, **shared)
        case LeakySpec():
            return Leaky(spec.width, **own, **shared)
        case ReservoirSpec():
            return Reservoir(spec.width, **own, **shared)
        case DeepRNNSpec():
            return DeepRNN(spec.width, **own, **shared)
        case JordanSpec():
            return Jordan(spec.width, output=spec.output, activation=spec.activation, **shared)
        case WindowSpec():
            return Window(spec.width, **own, **shared)
        case LatentSpec():
            return Latent(spec.width, **own, input_width=input_width, init=spec.init, generator=generator)
        case BasicAttentionSpec():
            return BasicAttention(input_width or spec.width, kernel=spec.kernel)
        case TransformerSpec():
            shared |= {
                "heads": spec.num_heads,
                "kv_heads": spec.kv_heads,
                "head_width": spec.head_width,
                "query_key_norm": (spec.norm_epsilon or 1e-6) if spec.query_key_norm else None,
                "position": spec.position if spec.position in ("rotary", "alibi") else "none",  # others stand below
                "rotary_base": spec.rotary_base,
                "rotary_scaling": spec.rotary_scaling and Scaling(**spec.rotary_scaling.model_dump()),
                "bias": spec.bias,
                "dropout": spec.attention_dropout,
            }
            if spec.window is None:
                return Attention(spec.width, **shared)
            return SlidingAttention(spec.width, window=spec.window, **shared)
        case LinearAttentionSpec():
            return LinearAttention(spec.width, **own, **shared)
        case GatedDeltaSpec():
            return GatedDelta(spec.width, **own, **shared)
        case Mamba2Spec():
            return Mamba2(spec.width, **own, **shared)
        case MinGRUSpec():
            return MinGRU(spec.width, **own, **shared)
        case MinLSTMSpec():
            return MinLSTM(spec.width, **own, **shared)
        case TTTLinearSpec():
            return TTT(spec.width, inner="linear", **own, **shared)
        case TTTMLPSpec():
            return TTT(spec.width, inner="mlp", **own, **shared)
        case CustomSpec(own=CustomMixer() as mixer):
            return mixer.build(spec, input_width=input_width, generator=generator)
        case CustomSpec():
            raise AssertionError("a user's class stands behind every such spec")
        case _:
            assert_never(spec)
