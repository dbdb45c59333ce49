"""A run as a Hugging Face folder of the architecture that it is: other tools open it without our code."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from statewise.disk import make_folder, write
from statewise.interop.families import FAMILIES, Config, Family, Known, Same
from statewise.specs import Mamba2Spec, ModelSpec, TransformerSpec, UserError
from statewise.tasks import LanguageModelRun, Run
from statewise.training import model_tensors

# They shape training or the choice of a kernel; the trained function is the same.
_NO_MATTER = {
    "dropout", "input_dropout", "embedding_dropout", "attention_dropout", "embedding_scale", "variational", "init",
    "kernel", "norm_epsilon", "context", "mlp_ratio", "heads", "kv_heads", "head_width", "embedding",
}  # fmt: skip


def export_hugging_face(run: Run, out: str | Path, *, native: bool | None = None) -> Path:
    """Write a run as `config.json`, `model.safetensors` and `tokenizer.json`; returns the folder.

    A run that is exactly a GPT-2, Llama, Mistral, Qwen3 or Mamba-2 is written as that (`native`), so that any tool
    opens it. Any other is written for `transformers` with `import statewise.hf`; with `native=True`
    it is refused, and the error names the settings that stand in the way.

    >>> gpt2 = {"model.position": "learned", "model.tie": True, "model.head_bias": False, "model.width": 32}
    >>> trained = sw.train("transformer", data="text.txt", steps=2, settings=gpt2)
    >>> folder = sw.export_hugging_face(trained.load(), "small-gpt2")
    >>> (folder / "config.json").is_file()
    True
    """
    model = with_weights(run)
    spec, vocab = model.spec.model, model.tokenizer.vocab
    target = new_folder(out)
    begin, end = model.begin_id, model.tokenizer.end_id
    try:
        described, weights = ({}, {}) if native is False else as_published(model)
    except UserError:
        if native:
            raise
        described, weights = {}, {}
    if not described:
        described = {
            "architectures": ["StatewiseForCausalLM"],
            "model_type": "statewise",
            "vocab_size": vocab,
            "spec": spec.model_dump(mode="json", exclude_none=True),
        }
        weights = {f"model.{name}": value.detach().cpu() for name, value in model_tensors(model.model).items()}
    config = {
        **described,
        "bos_token_id": begin,
        "eos_token_id": end,
        "dtype": "float32",
    }
    end_token = model.tokenizer.end_token
    tokens = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": model.begin_token, "eos_token": end_token}
    template = model.path / "chat_template.jinja"
    make_folder(target)
    # `transformers` refuses a file without this word.
    write(target / "model.safetensors", save(weights, metadata={"format": "pt"}))
    write(target / "config.json", json.dumps(config, indent=2) + "\n")
    write(target / "generation_config.json", json.dumps({"bos_token_id": begin, "eos_token_id": end}, indent=2) + "\n")
    write(target / "tokenizer.json", model.tokenizer.to_json(begin=model.begin_token if _trained(model) else None))
    write(target / "tokenizer_config.json", json.dumps(tokens, indent=2) + "\n")
    if template.is_file():
        write(target / "chat_template.jinja", template.read_text(encoding="utf-8"))
    write(target / "README.md", _card(model, str(described["model_type"])))
    return target


def with_weights(run: Run) -> LanguageModelRun:
    """What has a layout in other libraries: a language model, but not of counts."""
    texts = run.able(LanguageModelRun, lacks="has no layout in other libraries", fix="export a language model")
    if texts.spec.model.kind == "markov":
        raise UserError("a Markov model has counts, not weights", fix="export it as an ONNX graph")
    return texts


def new_folder(out: str | Path) -> Path:
    target = Path(out)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UserError(f"{str(target)!r} is there already", fix="choose another folder")
    return target


def as_published(run: LanguageModelRun) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Configuration and weights in the layout of the architecture that the model is."""
    spec, vocab = _known(run.spec.model), run.tokenizer.vocab
    kind, family = _fitting(spec, vocab)
    weights = _weights(spec, family, model_tensors(run.model))
    return {"architectures": [FAMILIES[kind].architecture], **family.config(spec, vocab)}, weights


def _known(spec: ModelSpec) -> Known:
    if isinstance(spec, TransformerSpec | Mamba2Spec):
        return spec
    raise UserError(
        f"a {spec.kind} model has no architecture in transformers: only transformer and mamba2 models have one",
        fix="export it as an ONNX graph",
    )


def _fitting(spec: Known, vocab: int) -> tuple[str, Family]:
    """The family whose configuration describes this model whole: read back, it is the same model."""
    nearest: list[str] | None = None
    for family in (FAMILIES["gpt2"], FAMILIES["llama"], FAMILIES["mamba2"]):
        if spec.kind != ("mamba2" if family is FAMILIES["mamba2"] else "transformer"):
            continue
        config = family.config(spec, vocab)
        again = family.spec(Config(config, "the configuration"))
        ours, theirs = _plain(spec), _plain(again)
        differing = [name for name in ours if ours[name] != theirs.get(name)]
        if spec.kind == "mamba2" and (spec.norm_epsilon or 1e-6) != again.norm_epsilon:
            ours["norm_epsilon"], theirs["norm_epsilon"] = spec.norm_epsilon or 1e-6, again.norm_epsilon
            differing.append("norm_epsilon")  # its inner norm has this one
        if not differing:
            return str(config["model_type"]), family
        said = [f"model.{name} = {json.dumps(theirs.get(name))} (it is {json.dumps(ours[name])})" for name in differing]
        if nearest is None or len(said) < len(nearest):
            nearest = [FAMILIES[str(config["model_type"])].architecture, *said]
    assert nearest is not None
    raise UserError(f"this model is no {nearest[0]}; that needs {', '.join(nearest[1:])}", fix="train it so")


def _plain(spec: Known) -> dict[str, Any]:
    return {name: value for name, value in spec.model_dump().items() if name not in _NO_MATTER}


def _weights(spec: Known, family: Family, ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
    weights: dict[str, Tensor] = {}
    every = [*family.tensors(spec)]
    if not spec.tie:
        every.append(Same(("head.weight_VE",), ("lm_head.weight",)))
    for same in every:
        value = torch.cat([ours[name].detach().cpu() for name in same.ours])
        if same.transposed:
            value = value.T
        if same.channel:
            value = value[:, None]
        parts = torch.split(value, list(same.rows)) if same.rows else (value,)
        weights |= dict(zip(same.theirs, (part.contiguous() for part in parts), strict=True))
    return weights


def _trained(run: LanguageModelRun) -> bool:
    """Whether this package trained it. What was only imported keeps its own way to read a text."""
    return (run.path / "metrics.jsonl").is_file()


def _card(run: LanguageModelRun, kind: str) -> str:
    """A model card with what the run itself knows."""
    spec = run.spec
    lines = [
        "---",
        "library_name: transformers",
        "pipeline_tag: text-generation",
        "tags: [statewise]",
        "---",
        f"# {run.path.name}",
        "",
        f"A language model of kind `{spec.model.kind}` in the layout of `{kind}`, trained with statewise.",
        *(["Before it is opened: `import statewise.hf`."] if kind == "statewise" else []),
        "",
        f"- parameters: {sum(value.numel() for value in run.model.parameters()):,}",
        f"- vocabulary: {run.tokenizer.vocab:,}",
    ]
    measured = run.history if _trained(run) else ()
    scores = [(row["validation_perplexity"], row["step"]) for row in measured if row.get("validation_perplexity")]
    if scores:
        perplexity, step = min(scores)
        lines.append(f"- validation perplexity: {perplexity:.4g} per token, at step {step}")
    return "\n".join(lines) + "\n"
