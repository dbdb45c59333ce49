"""Every setting of a run by its path: what `--set` can change, and which one an unknown option may have meant."""

from collections.abc import Iterable, Iterator
from difflib import SequenceMatcher
from typing import Any, Literal, NamedTuple, get_args, get_origin

from pydantic import BaseModel

# Names that other tools have for the same thing.
SYNONYMS = {
    "epochs": "steps",
    "num_epochs": "steps",
    "max_steps": "steps",
    "max_iters": "steps",
    "iterations": "steps",
    "learning_rate": "lr",
    "rate": "lr",
    "batch_size": "batch",
    "bs": "batch",
    "wd": "weight_decay",
    "optim": "optimizer",
    "scheduler": "schedule",
    "lr_schedule": "schedule",
    "lr_scheduler": "schedule",
    "warmup_steps": "warmup",
    "grad_clip": "clip",
    "clip_grad": "clip",
    "max_grad_norm": "clip",
    "gradient_clipping": "clip",
    "early_stopping": "patience",
    "eval_every": "evaluate_every",
    "eval_interval": "evaluate_every",
    "log_interval": "log_every",
    "save_interval": "save_every",
    "accumulation_steps": "accumulate",
    "gradient_accumulation_steps": "accumulate",
    "random_seed": "seed",
    "gpu": "device",
    "amp": "precision",
    "fp16": "precision",
    "bf16": "precision",
    "dtype": "precision",
    "seq_len": "window",
    "sequence_length": "window",
    "context_length": "window",
    "block_size": "window",
    "bptt": "train.truncation.length",
    "truncation": "train.truncation.length",
    "ema": "average",
    "arch": "kind",
    "architecture": "kind",
    "hidden": "width",
    "hidden_size": "width",
    "hidden_dim": "width",
    "hidden_units": "width",
    "units": "width",
    "d_model": "width",
    "n_embd": "width",
    "layers": "depth",
    "num_layers": "depth",
    "n_layers": "depth",
    "n_layer": "depth",
    "num_heads": "heads",
    "n_heads": "heads",
    "n_head": "heads",
    "embedding_size": "embedding",
    "embedding_dim": "embedding",
    "embed_dim": "embedding",
    "tie_weights": "tie",
    "vocab_size": "vocab",
    "lowercase": "lower",
    "val": "validation",
    "valid": "validation",
    "dev": "validation",
    "val_split": "held_out",
    "validation_split": "held_out",
    "max_length": "longest",
    "max_len": "longest",
    "beam_size": "beam",
    "num_beams": "beam",
    "text_column": "text",
    "label_column": "label",
}


class Setting(NamedTuple):
    """`choices` are the words it may be set to, where there are only some."""

    path: str
    value: Any
    choices: tuple[str, ...]
    description: str

    @property
    def name(self) -> str:
        return self.path.rpartition(".")[2]


def settings_of(spec: BaseModel, inside: str = "", kinds: tuple[str, ...] = ()) -> Iterator[Setting]:
    """Every setting of a run, in the order of its tables, with the value it has there.

    >>> from statewise.specs import load_recipe, make_spec
    >>> next(one for one in settings_of(make_spec(load_recipe("lstm"))) if one.path == "model.depth").description
    'layers'
    """
    for name, field in type(spec).model_fields.items():
        value = getattr(spec, name)
        if isinstance(value, BaseModel):
            yield from settings_of(value, f"{inside}{name}.", tuple(_kinds(field.annotation)))
            continue
        choices = tuple(map(str, get_args(field.annotation))) if get_origin(field.annotation) is Literal else ()
        if name == "kind" and len(choices) == 1:
            choices = kinds
        yield Setting(f"{inside}{name}", value, choices, field.description or "")


def _kinds(annotation: Any) -> Iterator[str]:
    """The `kind` of each spec that a table may hold."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        if "kind" in annotation.model_fields:
            yield str(annotation.model_fields["kind"].default)
        return
    for argument in get_args(annotation):
        yield from _kinds(argument)


def meant(name: str, settings: Iterable[Setting]) -> tuple[float, list[Setting]]:
    """The settings of this name, or of the nearest one, and how near it is: `hidden-size` means `model.width`."""
    word = name.lower().replace("-", "_")
    listed = list(settings)
    for wanted in (word, SYNONYMS.get(word)):
        exact = [
            setting for setting in listed if wanted in (setting.name, setting.path, setting.path.replace(".", "_"))
        ]
        if exact:
            return 1.0, exact
    near = {setting.name: likeness(word, setting.name) for setting in listed}
    best = max(near, key=lambda one: near[one], default="")
    return near.get(best, 0.0), [setting for setting in listed if setting.name == best]


def likeness(word: str, other: str) -> float:
    """From 0, no letter in common, to 1, the same."""
    return SequenceMatcher(None, word.lower(), other.lower()).ratio()
