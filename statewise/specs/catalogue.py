"""Every setting of a run by its path: what `--set` can change, and which one an unknown option may have meant."""

from collections.abc import Iterable, Iterator
from difflib import SequenceMatcher
from typing import Any, Literal, NamedTuple, get_args, get_origin

from pydantic import BaseModel

# The names of a setting, and those that other tools have for the same thing.
_OTHER_NAMES = {
    "steps": "epochs num_epochs max_steps max_iters iterations",
    "lr": "learning_rate rate",
    "batch": "batch_size bs",
    "weight_decay": "wd",
    "optimizer": "optim",
    "schedule": "scheduler lr_schedule lr_scheduler",
    "warmup": "warmup_steps",
    "clip": "grad_clip clip_grad max_grad_norm gradient_clipping",
    "patience": "early_stopping",
    "evaluate_every": "eval_every eval_interval",
    "log_every": "log_interval",
    "save_every": "save_interval",
    "accumulate": "accumulation_steps gradient_accumulation_steps",
    "seed": "random_seed",
    "device": "gpu",
    "precision": "amp fp16 bf16 dtype",
    "window": "seq_len sequence_length context_length block_size",
    "train.truncation.length": "bptt truncation",
    "average": "ema",
    "kind": "arch architecture",
    "width": "hidden hidden_size hidden_dim hidden_units units d_model n_embd",
    "depth": "layers num_layers n_layers n_layer",
    "heads": "num_heads n_heads n_head",
    "embedding": "embedding_size embedding_dim embed_dim",
    "tie": "tie_weights",
    "vocab": "vocab_size",
    "lower": "lowercase",
    "validation": "val valid dev",
    "held_out": "val_split validation_split",
    "longest": "max_length max_len",
    "beam": "beam_size num_beams",
    "text": "text_column",
    "label": "label_column",
}
SYNONYMS = {other: name for name, others in _OTHER_NAMES.items() for other in others.split()}


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
    >>> next(row for row in settings_of(make_spec(load_recipe("lstm"))) if row.path == "model.depth").description
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
    best = max(near, key=near.__getitem__, default="")
    return near.get(best, 0.0), [setting for setting in listed if setting.name == best]


def likeness(word: str, other: str) -> float:
    """From 0, no letter in common, to 1, the same."""
    return SequenceMatcher(None, word.lower(), other.lower()).ratio()
