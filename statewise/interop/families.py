"""Which model of ours a published architecture is: settings from its configuration and back, tensor by tensor.

A `Same` says that some tensors of ours, one below the other, are some of theirs; read in one direction it imports,
in the other it exports, and both are exact.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from statewise.specs import Mamba2Spec, RotaryScaling, TransformerSpec, UserError

Known = TransformerSpec | Mamba2Spec


class Same(NamedTuple):
    """Rows of `ours` = rows of `theirs`. `theirs` empty: ours is 0, since they have none."""

    ours: tuple[str, ...]
    theirs: tuple[str, ...]
    rows: tuple[int, ...] = ()  # of each of theirs, where there are several
    transposed: bool = False
    channel: bool = False  # theirs has one more dimension, of one channel


class Family(NamedTuple):
    """One architecture, under every `model_type` that differs in its configuration only."""

    architecture: str
    spec: Callable[["Config"], Known]
    tensors: Callable[[Known], Iterator[Same]]
    config: Callable[[Known, int], dict[str, Any]]
    prefix: str  # of all names but the head's; some files leave it out
    ignored: tuple[str, ...]  # endings of tensors that hold nothing learned


class Config:
    """A `config.json`, read with types and defaults; every key that changes the result is looked at."""

    def __init__(self, table: Mapping[str, Any], source: str) -> None:
        self.table, self.source = table, source

    def number(self, *names: str, default: float | None = None, least: float = 0) -> float:
        for name in names:
            value = self.table.get(name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not least < value < 1e12:
                raise UserError(f"{self.source}: {name} is {value!r}, expected a number above {least:g}")
            return value
        if default is None:
            raise UserError(f"{self.source} has no {names[0]}", fix="it is incomplete: download the folder again")
        return default

    def whole(self, *names: str, default: int | None = None) -> int:
        value = self.number(*names, default=default)
        if int(value) != value:
            raise UserError(f"{self.source}: {names[0]} is {value!r}, expected a whole number")
        return int(value)

    def flag(self, name: str, *, default: bool) -> bool:
        value = self.table.get(name)
        if value is not None and not isinstance(value, bool):
            raise UserError(f"{self.source}: {name} is {value!r}, expected true or false")
        return default if value is None else value

    def wants(self, name: str, *allowed: Any) -> None:
        """The first of `allowed` is what an absent key means."""
        value = self.table.get(name, allowed[0])
        if value not in allowed:
            said = " or ".join(map(repr, allowed))
            raise UserError(f"{self.source}: {name} is {value!r}, and this package has {said} only")


# -------------------------------------------------------------------- GPT-2


def _gpt2_spec(config: Config) -> TransformerSpec:
    config.wants("activation_function", "gelu_new", "gelu_pytorch_tanh")
    config.wants("scale_attn_weights", True)
    config.wants("scale_attn_by_inverse_layer_idx", False)
    config.wants("add_cross_attention", False)
    width = config.whole("n_embd")
    return TransformerSpec(
        width=width,
        depth=config.whole("n_layer"),
        heads=config.whole("n_head"),
        position="learned",
        context=config.whole("n_positions", "n_ctx"),
        norm="layer",
        norm_epsilon=config.number("layer_norm_epsilon", default=1e-5),
        mlp="gelu",
        mlp_ratio=config.whole("n_inner", default=4 * width) / width,
        tie=config.flag("tie_word_embeddings", default=True),
        head_bias=False,
    )


def _gpt2_tensors(spec: Known) -> Iterator[Same]:
    yield Same(("embedding.weight",), ("transformer.wte.weight",))
    yield Same(("stack.position.weight_PD",), ("transformer.wpe.weight",))
    for layer in range(spec.depth):
        ours, theirs = f"stack.blocks.{layer}.", f"transformer.h.{layer}."
        for mine, its, turned in (
            ("norm.weight", "ln_1.weight", False),
            ("norm.bias", "ln_1.bias", False),
            ("mixer.heads.w_PI", "attn.c_attn.weight", True),
            ("mixer.heads.b_P", "attn.c_attn.bias", False),
            ("mixer.heads.o_DD", "attn.c_proj.weight", True),
            ("mixer.heads.b_D", "attn.c_proj.bias", False),
            ("mlp_norm.weight", "ln_2.weight", False),
            ("mlp_norm.bias", "ln_2.bias", False),
            ("mlp.up.weight", "mlp.c_fc.weight", True),
            ("mlp.up.bias", "mlp.c_fc.bias", False),
            ("mlp.down.weight", "mlp.c_proj.weight", True),
            ("mlp.down.bias", "mlp.c_proj.bias", False),
        ):
            yield Same((ours + mine,), (theirs + its,), transposed=turned)
    yield Same(("stack.final_norm.weight",), ("transformer.ln_f.weight",))
    yield Same(("stack.final_norm.bias",), ("transformer.ln_f.bias",))


def _gpt2_config(spec: Known, vocab: int) -> dict[str, Any]:
    assert isinstance(spec, TransformerSpec)
    return {
        "model_type": "gpt2",
        "vocab_size": vocab,
        "n_positions": spec.context,
        "n_embd": spec.width,
        "n_layer": spec.depth,
        "n_head": spec.num_heads,
        "n_inner": spec.mlp_width(),
        "layer_norm_epsilon": spec.norm_epsilon or 1e-5,
        "activation_function": "gelu_new",
        "tie_word_embeddings": spec.tie,
        "resid_pdrop": spec.dropout,
        "embd_pdrop": spec.input_dropout,
        "attn_pdrop": spec.attention_dropout,
    }


# -------------------------------------------------------------------- Llama and its relatives


def _llama_spec(config: Config) -> TransformerSpec:
    kind = config.table.get("model_type")
    config.wants("hidden_act", "silu", "swish")
    config.wants("pretraining_tp", 1)
    width, heads = config.whole("hidden_size"), config.whole("num_attention_heads")
    head_width = config.whole("head_dim", default=None if width % heads else width // heads)
    window = None
    if kind == "mistral" or (kind in ("qwen2", "qwen3") and config.flag("use_sliding_window", default=False)):
        window = None if config.table.get("sliding_window") is None else config.whole("sliding_window")
        if window is not None and kind != "mistral":
            config.wants("max_window_layers", 0)
    rotary = _rotary(config)
    return TransformerSpec(
        width=width,
        depth=config.whole("num_hidden_layers"),
        heads=heads,
        kv_heads=config.whole("num_key_value_heads", default=heads),
        head_width=None if head_width * heads == width else head_width,
        query_key_norm=kind == "qwen3",
        window=window,
        position="rotary",
        rotary_base=rotary.number("rope_theta", default=10_000.0, least=1),
        rotary_scaling=_scaling(rotary),
        norm="rms",
        norm_epsilon=config.number("rms_norm_eps", default=1e-6),
        mlp="swiglu",
        mlp_ratio=config.whole("intermediate_size") / width,
        bias=_llama_biases(config) != (False, False, False),
        tie=config.flag("tie_word_embeddings", default=False),
        head_bias=False,
    )


def _llama_biases(config: Config) -> tuple[bool, bool, bool]:
    """Of queries, keys and values; of attention's output; of the MLP."""
    attention = config.flag("attention_bias", default=False)
    qkv = attention or config.table.get("model_type") == "qwen2"
    return qkv, attention, config.flag("mlp_bias", default=False)


def _rotary(config: Config) -> Config:
    """All that is said of rotary positions; old folders say it in `rope_scaling` and beside it."""
    every = {name: config.table.get(name) for name in ("rope_theta", "max_position_embeddings")}
    for name in ("rope_scaling", "rope_parameters"):
        table = config.table.get(name) or {}
        if not isinstance(table, dict):
            raise UserError(f"{config.source}: {name} is {table!r}, expected a table")
        every |= {key: value for key, value in table.items() if value is not None}
    return Config(every, config.source)


def _scaling(rotary: Config) -> RotaryScaling | None:
    kind = rotary.table.get("rope_type", rotary.table.get("type", "default"))
    if kind == "default":
        return None
    rotary.wants("partial_rotary_factor", 1)
    if kind == "linear":
        return RotaryScaling(kind="linear", factor=rotary.number("factor"))
    if not isinstance(kind, str) or kind not in _BOUNDS:
        raise UserError(f"{rotary.source}: rotary positions of type {kind!r}, expected default, linear, llama3 or yarn")
    slow, fast = _BOUNDS[kind]
    if kind == "yarn":
        rotary.wants("attention_factor", None)
        rotary.wants("mscale", None)
        rotary.wants("truncate", True)
    return RotaryScaling(
        kind=kind,
        factor=rotary.number("factor"),
        context=rotary.whole("original_max_position_embeddings", "max_position_embeddings"),
        slow=rotary.number(slow, default=1.0),
        fast=rotary.number(fast, default=32.0 if kind == "yarn" else 4.0),
    )


_BOUNDS: Mapping[Any, tuple[str, str]] = {  # their names of `slow` and `fast`
    "llama3": ("low_freq_factor", "high_freq_factor"),
    "yarn": ("beta_slow", "beta_fast"),
}


def _rope_scaling(scaling: RotaryScaling) -> dict[str, Any]:
    if scaling.kind == "linear":
        return {"rope_type": "linear", "factor": scaling.factor}
    bounds = dict(zip(_BOUNDS[scaling.kind], (scaling.slow, scaling.fast)))
    context = {"original_max_position_embeddings": scaling.context}
    return {"rope_type": scaling.kind, "factor": scaling.factor, **context, **bounds}


def _llama_tensors(spec: Known) -> Iterator[Same]:
    assert isinstance(spec, TransformerSpec)
    size = spec.head_width or spec.width // spec.num_heads
    rows = (spec.num_heads * size, *[(spec.kv_heads or spec.num_heads) * size] * 2)
    yield Same(("embedding.weight",), ("model.embed_tokens.weight",))
    for layer in range(spec.depth):
        ours, theirs = f"stack.blocks.{layer}.", f"model.layers.{layer}."
        heads, attention = f"{ours}mixer.heads.", f"{theirs}self_attn."
        projections = [f"{attention}{name}_proj." for name in "qkv"]
        both = [f"{theirs}mlp.{name}_proj." for name in ("gate", "up")]
        hidden = (spec.mlp_width(),) * 2
        yield Same((f"{ours}norm.weight",), (f"{theirs}input_layernorm.weight",))
        yield Same((f"{heads}w_PI",), tuple(f"{name}weight" for name in projections), rows)
        yield Same((f"{heads}o_DD",), (f"{attention}o_proj.weight",))
        if spec.query_key_norm:
            yield Same((f"{heads}query_gain_K",), (f"{attention}q_norm.weight",))
            yield Same((f"{heads}key_gain_K",), (f"{attention}k_norm.weight",))
        yield Same((f"{ours}mlp_norm.weight",), (f"{theirs}post_attention_layernorm.weight",))
        yield Same((f"{ours}mlp.up.weight",), tuple(f"{name}weight" for name in both), hidden)
        yield Same((f"{ours}mlp.down.weight",), (f"{theirs}mlp.down_proj.weight",))
        if spec.bias:
            yield Same((f"{heads}b_P",), tuple(f"{name}bias" for name in projections), rows)
            yield Same((f"{heads}b_D",), (f"{attention}o_proj.bias",))
            yield Same((f"{ours}mlp.up.bias",), tuple(f"{name}bias" for name in both), hidden)
            yield Same((f"{ours}mlp.down.bias",), (f"{theirs}mlp.down_proj.bias",))
    yield Same(("stack.final_norm.weight",), ("model.norm.weight",))


def _llama_config(spec: Known, vocab: int) -> dict[str, Any]:
    assert isinstance(spec, TransformerSpec)
    kind = "qwen3" if spec.query_key_norm else "mistral" if spec.window else "llama"
    config = {
        "model_type": kind,
        "vocab_size": vocab,
        "hidden_size": spec.width,
        "intermediate_size": spec.mlp_width(),
        "num_hidden_layers": spec.depth,
        "num_attention_heads": spec.num_heads,
        "num_key_value_heads": spec.kv_heads or spec.num_heads,
        "head_dim": spec.head_width or spec.width // spec.num_heads,
        "hidden_act": "silu",
        "max_position_embeddings": spec.context,
        "rms_norm_eps": spec.norm_epsilon or 1e-6,
        "rope_theta": spec.rotary_base,
        "attention_dropout": spec.attention_dropout,
        "tie_word_embeddings": spec.tie,
    }
    if spec.rotary_scaling is not None:
        config["rope_scaling"] = _rope_scaling(spec.rotary_scaling)
    if kind == "llama":
        config |= {"attention_bias": spec.bias, "mlp_bias": spec.bias}
    if kind == "mistral":
        config["sliding_window"] = spec.window
    return config


# -------------------------------------------------------------------- Mamba-2


def _mamba2_spec(config: Config) -> Mamba2Spec:
    config.wants("hidden_act", "silu", "swish")
    config.wants("n_groups", 1)
    config.wants("use_bias", False)
    config.wants("norm_before_gate", False, True)  # `transformers` does not read it
    limit = config.table.get("time_step_limit")
    if limit is not None and (not isinstance(limit, list) or len(limit) != 2 or limit[0] != 0):
        raise UserError(f"{config.source}: time_step_limit is {limit!r}, and this package has none")
    if limit is not None and isinstance(limit[1], int | float) and limit[1] < 1e9:
        raise UserError(f"{config.source}: time_step_limit is {limit!r}, and this package has none")
    width, expand = config.whole("hidden_size"), config.whole("expand", default=2)
    heads, size = config.whole("num_heads"), config.whole("head_dim", default=64)
    if heads * size != expand * width:
        raise UserError(f"{config.source}: {heads} heads of {size} are not the inner width {expand * width}")
    if (epsilon := config.number("layer_norm_epsilon", default=1e-5)) != 1e-5:
        raise UserError(f"{config.source}: layer_norm_epsilon is {epsilon:g}, and this package has 1e-05 only")
    return Mamba2Spec(
        width=width,
        depth=config.whole("num_hidden_layers"),
        heads=heads,
        state=config.whole("state_size", default=128),
        expand=expand,
        conv=config.whole("conv_kernel", default=4),
        conv_bias=config.flag("use_conv_bias", default=True),
        skip="head",
        norm="rms",
        norm_epsilon=1e-5,
        tie=config.flag("tie_word_embeddings", default=False),
        head_bias=False,
    )


def _mamba2_tensors(spec: Known) -> Iterator[Same]:
    assert isinstance(spec, Mamba2Spec)
    yield Same(("embedding.weight",), ("backbone.embeddings.weight",))
    for layer in range(spec.depth):
        ours, theirs = f"stack.blocks.{layer}.mixer.", f"backbone.layers.{layer}."
        its = f"{theirs}mixer."
        yield Same((f"stack.blocks.{layer}.norm.weight",), (f"{theirs}norm.weight",))
        yield Same((f"{ours}w_gate_EI", f"{ours}w_CI", f"{ours}w_step_HI"), (f"{its}in_proj.weight",))
        yield Same((f"{ours}w_conv_CK",), (f"{its}conv1d.weight",), channel=True)
        if spec.conv_bias:
            yield Same((f"{ours}b_conv_C",), (f"{its}conv1d.bias",))
        yield Same((f"{ours}b_step_H",), (f"{its}dt_bias",))
        yield Same((f"{ours}log_rate_H",), (f"{its}A_log",))
        yield Same((f"{ours}skip_H",), (f"{its}D",))
        yield Same((f"{ours}gain_E",), (f"{its}norm.weight",))
        yield Same((f"{ours}w_out_DE",), (f"{its}out_proj.weight",))
    yield Same(("stack.final_norm.weight",), ("backbone.norm_f.weight",))


def _mamba2_config(spec: Known, vocab: int) -> dict[str, Any]:
    assert isinstance(spec, Mamba2Spec)
    return {
        "model_type": "mamba2",
        "vocab_size": vocab,
        "hidden_size": spec.width,
        "num_hidden_layers": spec.depth,
        "num_heads": spec.heads,
        "head_dim": spec.expand * spec.width // spec.heads,
        "state_size": spec.state,
        "expand": spec.expand,
        "n_groups": 1,
        "conv_kernel": spec.conv,
        "use_conv_bias": spec.conv_bias,
        "use_bias": False,
        "hidden_act": "silu",
        "layer_norm_epsilon": 1e-5,
        "tie_word_embeddings": spec.tie,
    }


_GPT2 = Family(
    "GPT2LMHeadModel", _gpt2_spec, _gpt2_tensors, _gpt2_config, "transformer.", (".attn.bias", ".attn.masked_bias")
)
_LLAMA = Family("LlamaForCausalLM", _llama_spec, _llama_tensors, _llama_config, "model.", ("rotary_emb.inv_freq",))
_MAMBA2 = Family("Mamba2ForCausalLM", _mamba2_spec, _mamba2_tensors, _mamba2_config, "backbone.", ())
FAMILIES: Mapping[str, Family] = {
    "gpt2": _GPT2,
    "llama": _LLAMA,
    "mistral": _LLAMA._replace(architecture="MistralForCausalLM"),
    "qwen2": _LLAMA._replace(architecture="Qwen2ForCausalLM"),
    "qwen3": _LLAMA._replace(architecture="Qwen3ForCausalLM"),
    "mamba2": _MAMBA2,
}
