"""A translator as graphs: what is read before writing begins, and the steps of writing.

S source time, I numbers of a vector.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from statewise.core import Machine
from statewise.models import (
    BernoulliStop,
    ConditionalMachine,
    EndAsToken,
    RemainingLength,
    Terminating,
    longest_context,
)
from statewise.specs import TranslationSpec
from statewise.tasks.portable import Portable, ragged_lengths, ragged_tokens
from statewise.tasks.translation.examples import Languages
from statewise.tasks.translation.sides import ClassSource, TextSource, VectorSource
from statewise.tasks.translation.translator import Translator


def portable(
    model: Machine[Any],
    spec: TranslationSpec,
    languages: Languages,
    translator: Translator,
    *,
    longest_learned: int | None,
) -> Portable:
    decoding, source = spec.decoding, languages.source
    reader = model.reader if isinstance(model, ConditionalMachine) else model
    settings: dict[str, Any] = {
        "source_kind": spec.data.source_kind,
        "target": "tokenizer.json" if languages.shared else "target.json",
        "series": languages.levels is not None,
        "end": translator.start_id,
        "ends": _ends(model),
        "never": translator.never(decoding),
        "context": longest_context(reader),
        "most_written": translator.most_written(0),
        # Where there is one model, what was read takes places, too.
        "shares_places": isinstance(model, Terminating),
        **{name: getattr(decoding, name) for name in ("min_length", "max_ratio", "extra")},
    }
    match source:
        case TextSource():
            settings |= {
                "source": "tokenizer.json" if languages.shared else "source.json",
                "source_end": source.tokenizer.end_id,
                "longest_source": languages.longest,
                "reverse": spec.data.reverse,
            }
            sample = partial(ragged_tokens, source.tokenizer.vocab)
        case ClassSource():
            settings["classes"] = source.classes.names
            sample = partial(ragged_tokens, len(source.classes))
        case VectorSource():
            settings |= source.scaling.to_json()
            sample = partial(_vectors, len(source.scaling.mean_C))
    if spec.data.source_kind != "text":
        settings["longest_learned"] = longest_learned or spec.data.longest
    files = {name: text for name, text in languages.files().items() if isinstance(text, str)}
    machine = EndAsToken(model) if isinstance(model, Terminating) else model
    return Portable(settings, files, machine=machine, source=sample)


def _ends(model: Machine[Any]) -> str:
    """How it is decided that a text is over: by a symbol, by a yes or no, or by a length that comes first."""
    match model:
        case BernoulliStop():
            return "bernoulli"
        case RemainingLength():
            return "remaining"
        case _:
            return "symbol"


def _vectors(values: int, rows: int, time: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return torch.randn(rows, time, values, generator=generator), ragged_lengths(rows, time, generator)
