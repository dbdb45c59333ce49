"""A lens: a name, what it shows, with which settings; and what all lenses share."""

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import stdev
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from pydantic import ValidationError

from statewise.display import Progress
from statewise.inspection.finding import Finding
from statewise.inspection.subject import Subject
from statewise.kernels import student_t
from statewise.specs import Spec, UserError, nearest, option
from statewise.tasks import Specimens

S = TypeVar("S", bound=Spec)


class Lens(NamedTuple):
    name: str
    shows: str  # in a sentence
    quick: bool  # whether it is part of `statewise inspect RUN`
    settings: type[Spec]
    apply: Callable[[Subject, Any, Progress], Finding]
    needs_run: bool = True  # False: it makes its own models


def read_settings(settings: type[S], given: Mapping[str, Any], *, lens: str) -> S:
    """Validated settings; an error names the value and what would be valid."""
    try:
        return settings.model_validate(dict(given))
    except ValidationError as error:
        lines = []
        for detail in error.errors():
            path = ".".join(str(part) for part in detail["loc"])
            if detail["type"] == "extra_forbidden":
                valid = nearest(path, settings.model_fields) if settings.model_fields else "it has none"
                lines.append(f"  {path}: unknown setting; {valid}")
            else:
                message = detail["msg"].removeprefix("Value error, ")
                lines.append(f"  {path} = {detail['input']!r}: {message[0].lower()}{message[1:]}")
        raise UserError(f"the settings of the lens {lens!r} are not valid:\n" + "\n".join(lines)) from None


def choose_rows(specimens: Specimens, count: int, *, shortest: int = 2, longest: int | None = None) -> list[int]:
    """Up to `count` rows of `shortest` to `longest` places, evenly spaced, in their order."""
    place = specimens.words.place
    able = [number for number in range(len(specimens)) if specimens.length(number) >= shortest]
    if able and longest is not None:
        able = [number for number in able if specimens.length(number) <= longest]
        if not able:
            raise UserError(
                f"every row of {specimens.source} has more than {longest:,} {place}s, and all of a row is held at once",
                fix=f"give shorter rows: {option('data', 'FILE')}",
            )
    if not able:
        raise UserError(
            f"no row of {specimens.source} has {shortest} {place}s or more",
            fix=f"give longer rows: {option('data', 'FILE')}",
        )
    return [able[at] for at in np.unique(np.linspace(0, len(able) - 1, count).round().astype(int))]


def short_names(names: Sequence[str]) -> list[str]:
    """Of each dotted name the last word, and those before it in which two of the names differ."""
    split = [_words(name) for name in names]
    kept = [
        [word for at, word in enumerate(words[:-1]) if any(_only_there(words, other, at) for other in split)]
        for words in split
    ]
    short = [" ".join([*some, words[-1]]) for some, words in zip(kept, split)]
    return [name if short.count(brief) > 1 else brief for brief, name in zip(short, names)]


def _words(name: str) -> list[str]:
    """A number at the end stays with the word before it."""
    words = name.split(".")
    return [*words[:-2], ".".join(words[-2:])] if words[-1].isdigit() else words


def _only_there(words: Sequence[str], other: Sequence[str], at: int) -> bool:
    """Whether two names differ in this word and in no other."""
    return len(words) == len(other) and [i for i, (a, b) in enumerate(zip(words, other)) if a != b] == [at]


def half_width(values: Sequence[float]) -> float | None:
    """Half the width of the 95 % interval of a mean, by Student's t; None for a single value."""
    if len(values) < 2:
        return None
    freedom = torch.tensor(float(len(values) - 1), dtype=torch.float64)
    factor = float(student_t.quantile(torch.tensor(0.975, dtype=torch.float64), freedom))
    return factor * stdev(values) / math.sqrt(len(values))
