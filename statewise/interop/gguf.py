"""A run as a GGUF file: llama.cpp, and all that is built on it, open it without our code.

The weights go through the Hugging Face layout, whose names the `gguf` package knows; llama.cpp stores some of them in
another order. Its tokenizer of GPT-2's kind holds byte-level BPE, single bytes and single characters.
"""

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from statewise.data import Tokenizer, byte_characters
from statewise.disk import make_folder, write
from statewise.interop.families import Known
from statewise.interop.hugging_face import as_published, new_folder, with_weights
from statewise.kernels.rotary import Scaling, rates
from statewise.specs import Mamba2Spec, ModelSpec, RotaryScaling, TransformerSpec, UserError, from_json, optional
from statewise.tasks import Run

NAME = "model.gguf"
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_ARCHITECTURES = ("gpt2", "llama", "qwen3", "mamba2")
_NEVER = "<end> <end>"  # a merge that no text meets, where a tokenizer has none: llama.cpp wants a list
_CONTEXT = 1 << 20  # of a model that has no longest text


def export_gguf(run: Run, out: str | Path) -> Path:
    """Write `model.gguf` into a new folder; returns the file. Weights are in float32.

    A run must be exactly a GPT-2, a Llama, a Qwen3 or a Mamba-2; otherwise the error names the settings in the way.
    """
    gguf = optional("gguf", extra="gguf", needed_by="GGUF files")
    model, target = with_weights(run), new_folder(out)
    config, weights = as_published(model)
    kind = str(config["model_type"])
    if kind not in _ARCHITECTURES:
        raise UserError(f"a {kind} model has no GGUF form here: llama.cpp knows no window of it", fix="export it as hf")
    _refuse_scaling(model.spec.model, kind)
    vocabulary, spec = _vocabulary(model.tokenizer), model.spec.model
    assert isinstance(spec, TransformerSpec | Mamba2Spec)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / NAME
        writer = gguf.GGUFWriter(path, kind)
        writer.add_name(run.path.name)
        writer.add_file_type(gguf.LlamaFileType.ALL_F32)
        _describe(writer, gguf, spec, config)
        _add_vocabulary(writer, gguf, vocabulary, model.tokenizer, begin_id=model.begin_id)
        names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[kind.upper()], spec.depth)
        for name, value in _stored(spec, kind, weights):
            known = names.get_name(name.replace(".dt_bias", ".dt_proj.bias"), try_suffixes=(".weight", ".bias"))
            writer.add_tensor(known or name, value.float().contiguous().numpy())
        template = run.path / "chat_template.jinja"
        if template.is_file():
            writer.add_chat_template(template.read_text(encoding="utf-8"))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        make_folder(target)
        write(target / NAME, path.read_bytes())
    return target / NAME


# -------------------------------------------------------------------- sizes and weights


def _refuse_scaling(spec: ModelSpec, kind: str) -> None:
    """llama.cpp reads less of it than `transformers`."""
    scaling = spec.rotary_scaling if isinstance(spec, TransformerSpec) else None
    if scaling is None:
        return
    if scaling.kind == "yarn" and (scaling.slow, scaling.fast) != (1.0, 32.0):
        raise UserError("llama.cpp has yarn with slow = 1 and fast = 32 only", fix="export it as hf")
    if scaling.kind == "llama3" and kind != "llama":
        raise UserError(f"llama.cpp has no llama3 scaling of a {kind} model", fix="export it as hf")


def _describe(writer: Any, gguf: Any, spec: Known, config: Mapping[str, Any]) -> None:
    writer.add_block_count(spec.depth)
    writer.add_embedding_length(spec.width)
    writer.add_vocab_size(config["vocab_size"])
    if isinstance(spec, Mamba2Spec):
        writer.add_context_length(_CONTEXT)
        writer.add_feed_forward_length(0)
        writer.add_head_count(0)
        writer.add_layer_norm_rms_eps(config["layer_norm_epsilon"])
        writer.add_ssm_conv_kernel(spec.conv)
        writer.add_ssm_inner_size(spec.expand * spec.width)
        writer.add_ssm_state_size(spec.state)
        writer.add_ssm_time_step_rank(spec.heads)
        writer.add_ssm_group_count(1)
        return
    writer.add_context_length(spec.context)
    writer.add_feed_forward_length(spec.mlp_width())
    writer.add_head_count(spec.num_heads)
    if spec.position == "learned":
        writer.add_layer_norm_eps(config["layer_norm_epsilon"])
        return
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_rope_freq_base(spec.rotary_base)
    scaling = spec.rotary_scaling
    if scaling is not None and scaling.kind != "llama3":  # which is a tensor of its own
        writer.add_rope_scaling_type(gguf.RopeScalingType(scaling.kind))
        writer.add_rope_scaling_factor(scaling.factor)
        if scaling.kind == "yarn":
            writer.add_rope_scaling_orig_ctx_len(scaling.context)


def _stored(spec: Known, kind: str, weights: Mapping[str, Tensor]) -> list[tuple[str, Tensor]]:
    """Each tensor of the Hugging Face layout as llama.cpp wants it."""
    tensors = []
    for name, value in weights.items():
        part = name.removesuffix(".weight").removesuffix(".bias").rpartition(".")[2]
        if part in ("c_attn", "c_proj", "c_fc") and value.ndim == 2:
            value = value.T
        elif part in ("q_proj", "k_proj") and kind == "llama":
            assert isinstance(spec, TransformerSpec)
            value = _interleaved(value, spec.head_width or spec.width // spec.num_heads)
        elif part == "conv1d" and value.ndim == 3:
            value = value[:, 0]
        elif part == "A_log":
            value = -value.exp()[:, None]
        elif part == "D":
            value = value[:, None]
        elif name.endswith("mixer.norm.weight"):
            value = value[None]
        tensors.append((name, value))
    if isinstance(spec, Mamba2Spec) and not spec.conv_bias:
        channels = spec.expand * spec.width + 2 * spec.state
        tensors += [(f"backbone.layers.{n}.mixer.conv1d.bias", torch.zeros(channels)) for n in range(spec.depth)]
    if isinstance(spec, TransformerSpec) and spec.rotary_scaling is not None and spec.rotary_scaling.kind == "llama3":
        tensors.append(("rope_freqs.weight", _slower(spec, spec.rotary_scaling)))
    return tensors


def _interleaved(value: Tensor, size: int) -> Tensor:
    """Rotary pairs `(i, i + K/2)` of each head side by side."""
    return value.view(-1, 2, size // 2, *value.shape[1:]).transpose(1, 2).reshape(value.shape)


def _slower(spec: TransformerSpec, scaling: RotaryScaling) -> Tensor:
    """How many times slower each pair turns."""
    half = (spec.head_width or spec.width // spec.num_heads) // 2
    plain, scaled = (
        rates(half, base=spec.rotary_base, scaling=its, device=torch.device("cpu"))
        for its in (None, Scaling(**scaling.model_dump()))
    )
    return plain / scaled


# -------------------------------------------------------------------- the vocabulary


class _Vocabulary(NamedTuple):
    pre: str  # llama.cpp's name of how text is cut before merging
    tokens: Mapping[str, int]
    merges: Sequence[str]
    added: Mapping[str, bool]  # is it special?


def _vocabulary(tokenizer: Tokenizer) -> _Vocabulary:
    table = from_json(tokenizer.to_json())
    model = table["model"]
    added = {row["content"]: bool(row["special"]) for row in table.get("added_tokens") or ()}
    ids = {**model["vocab"], **{row["content"]: row["id"] for row in table.get("added_tokens") or ()}}
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model.get("merges") or ()]
    if model["type"] != "BPE" or table.get("normalizer") is not None:
        raise UserError(
            "this tokenizer has no form in GGUF: it is none of bpe, byte and char, or it changes the text first",
            fix="train with data.tokenizer = 'bpe' and without data.lower, or export another format",
        )
    if table.get("pre_tokenizer") is None and not merges:  # characters
        special = {tokenizer.end_id, tokenizer.unknown_id}
        spelled = {token: token if i in special else _spelled(token) for token, i in ids.items()}
        return _Vocabulary("gpt-2", {spelled[token]: i for token, i in ids.items()}, _character_merges(ids), added)
    pre = _cutting(table.get("pre_tokenizer"), merges=bool(merges), whole_words=bool(model.get("ignore_merges")))
    return _Vocabulary(pre, ids, merges, added)


def _spelled(text: str) -> str:
    letters = byte_characters()
    return "".join(letters[byte] for byte in text.encode())


def _character_merges(ids: Mapping[str, int]) -> list[str]:
    """The bytes of each character, joined from the first on."""
    every = (_spelled(token) for token in ids if len(token) == 1)
    return list(dict.fromkeys(f"{text[:n]} {text[n]}" for text in every for n in range(1, len(text))))


def _cutting(table: Any, *, merges: bool, whole_words: bool) -> str:
    """llama.cpp's name of a pre-tokenizer."""
    match table, whole_words:
        case {"type": "ByteLevel", "add_prefix_space": False, "use_regex": use_regex}, False if use_regex or not merges:
            return "gpt-2"
        case (
            {
                "type": "Sequence",
                "pretokenizers": [
                    {"type": "Digits", "individual_digits": True},
                    {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
                ],
            },
            False,
        ):
            return "smollm"
        case (
            {
                "type": "Sequence",
                "pretokenizers": [
                    {"type": "Split", "pattern": {"Regex": pattern}},
                    {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False},
                ],
            },
            True,
        ) if pattern == _LLAMA3:
            return "llama-bpe"
    raise UserError(
        f"llama.cpp has no name for how this tokenizer cuts text: {json.dumps(table)[:200]}",
        fix="train with data.tokenizer = 'bpe', or export another format",
    )


def _add_vocabulary(writer: Any, gguf: Any, vocabulary: _Vocabulary, tokenizer: Tokenizer, *, begin_id: int) -> None:
    tokens = [f"<unused {i}>" for i in range(tokenizer.vocab)]
    types = [gguf.TokenType.UNUSED] * tokenizer.vocab
    for text, i in vocabulary.tokens.items():
        tokens[i], types[i] = text, gguf.TokenType.NORMAL
        if text in vocabulary.added:
            types[i] = gguf.TokenType.CONTROL if vocabulary.added[text] else gguf.TokenType.USER_DEFINED
    types[tokenizer.end_id] = gguf.TokenType.CONTROL
    if tokenizer.unknown_id is not None:
        types[tokenizer.unknown_id] = gguf.TokenType.UNKNOWN
        writer.add_unk_token_id(tokenizer.unknown_id)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(vocabulary.pre)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(list(vocabulary.merges) or [_NEVER])
    writer.add_bos_token_id(begin_id)
    writer.add_eos_token_id(tokenizer.end_id)
    writer.add_add_bos_token(True)  # the first input of every text
