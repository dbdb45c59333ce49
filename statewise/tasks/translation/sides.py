"""The two sides of a pair: a source that is a text, a class or a vector, and a target that is a text or a series.

S source time, I numbers of a vector, L levels.
"""

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from statewise.data import END, Labels, Scaling, Tokenizer, Where, numbers_in, pad
from statewise.specs import PairDataSpec, UserError, from_json, read_small
from statewise.training import Payload

Floats = NDArray[np.float64]
Index = NDArray[np.int64]
SourceRow = NDArray[Any]  # [S] ids or [S, I] numbers


class Source(ABC):
    """From the text of a source to what an encoder reads; kept with the weights."""

    @abstractmethod
    def encode(self, texts: Sequence[str], where: Sequence[Where] | None = None) -> list[SourceRow]:
        """All of every source."""

    def as_read(self, source: SourceRow) -> SourceRow:
        """What is read of it."""
        return source

    def length_as_read(self, length_N: Index) -> Index:
        return length_N

    @abstractmethod
    def spelled(self, source: SourceRow) -> tuple[str, ...]:
        """Each position of what is read, as text."""

    def unknown_share(self, sources: Sequence[SourceRow]) -> float:
        """Of all tokens, those that the vocabulary does not have."""
        return 0.0

    @abstractmethod
    def inputs(self) -> dict[str, int]:
        """What `build_seq2seq` has to know of it."""

    @abstractmethod
    def files(self) -> dict[str, Payload]: ...


@final
class TextSource(Source):
    def __init__(self, tokenizer: Tokenizer, *, longest: int, reverse: bool) -> None:
        self.tokenizer, self._longest, self._reverse = tokenizer, longest, reverse

    def encode(self, texts: Sequence[str], where: Sequence[Where] | None = None) -> list[SourceRow]:
        return list(self.tokenizer.encode_many(list(texts)))

    def as_read(self, source: SourceRow) -> SourceRow:
        """Cut, in the order of reading, and the end symbol."""
        return np.append(source[: self._longest][:: -1 if self._reverse else 1], self.tokenizer.end_id)

    def length_as_read(self, length_N: Index) -> Index:
        return np.minimum(length_N, self._longest) + 1

    def spelled(self, source: SourceRow) -> tuple[str, ...]:
        return spelled(self.tokenizer, source.tolist())

    def unknown_share(self, sources: Sequence[SourceRow]) -> float:
        return self.tokenizer.unknown_share(sources)

    def inputs(self) -> dict[str, int]:
        return {"source_vocab": self.tokenizer.vocab}

    def files(self) -> dict[str, Payload]:
        return {"source.json": self.tokenizer.to_json()}


@final
class ClassSource(Source):
    """One symbol."""

    def __init__(self, classes: Labels) -> None:
        self.classes = classes

    @classmethod
    def learn(cls, texts: Iterable[str]) -> "ClassSource":
        return cls(Labels.of(text.strip() for text in texts))

    def encode(self, texts: Sequence[str], where: Sequence[Where] | None = None) -> list[SourceRow]:
        names = [text.strip() for text in texts]
        for number, name in enumerate(names):
            if self.classes.find(name) < 0:
                place = "" if where is None else f"{where[number]}: "
                known = ", ".join(self.classes.names[:12]) + (", …" if len(self.classes) > 12 else "")
                raise UserError(f"{place}{name[:60]!r} is no class that was learned", fix=f"give one of: {known}")
        return list(self.classes.encode(names).ids_N[:, None])

    def spelled(self, source: SourceRow) -> tuple[str, ...]:
        return tuple(self.classes.decode(source.tolist()))

    def inputs(self) -> dict[str, int]:
        return {"source_vocab": len(self.classes)}

    def files(self) -> dict[str, Payload]:
        return {"classes.json": self.classes.to_json()}


@final
class VectorSource(Source):
    """One position of several numbers, each scaled by its mean and deviation in training."""

    def __init__(self, scaling: Scaling) -> None:
        self.scaling = scaling

    @classmethod
    def learn(cls, texts: Sequence[str], where: Sequence[Where]) -> "VectorSource":
        rows_NI = np.stack(_vectors(texts, where, None))
        std_I = rows_NI.std(0)
        return cls(Scaling(tuple(rows_NI.mean(0).tolist()), tuple(np.where(std_I > 0, std_I, 1.0).tolist())))

    def encode(self, texts: Sequence[str], where: Sequence[Where] | None = None) -> list[SourceRow]:
        rows = _vectors(texts, where, len(self.scaling.mean_C))
        return [self.scaling.scaled(row_I[None]).astype(np.float32) for row_I in rows]

    def spelled(self, source: SourceRow) -> tuple[str, ...]:
        back_SI = source * np.array(self.scaling.std_C) + np.array(self.scaling.mean_C)
        return tuple(" ".join(f"{value:.4g}" for value in row_I) for row_I in back_SI)

    def inputs(self) -> dict[str, int]:
        return {"source_values": len(self.scaling.mean_C)}

    def files(self) -> dict[str, Payload]:
        return {"scaling.json": json.dumps(self.scaling.to_json()) + "\n"}


def _vectors(texts: Sequence[str], where: Sequence[Where] | None, size: int | None) -> list[Floats]:
    rows: list[Floats] = []
    for number, text in enumerate(texts):
        place = f"source {number}" if where is None else where[number]
        rows.append(numbers_in(text, where=place))
        size = size or len(rows[0])
        if len(rows[-1]) != size:
            raise UserError(
                f"{place}: a vector of {len(rows[-1])} numbers, expected {size}", fix="give all vectors one length"
            )
    return rows


def load_source(spec: PairDataSpec, folder: Path) -> Source:
    """What `files` left in a folder."""
    match spec.source_kind:
        case "class":
            return ClassSource(Labels.from_json(read_small(folder / "classes.json")))
        case "vector":
            try:
                return VectorSource(Scaling.from_json(from_json(read_small(folder / "scaling.json"))))
            except (OSError, ValueError, KeyError, TypeError):
                raise UserError(f"{str(folder)!r}: scaling.json cannot be read") from None
        case "text":
            tokenizer = Tokenizer.load(folder / ("tokenizer.json" if spec.shared_vocab else "source.json"))
            return TextSource(tokenizer, longest=spec.longest, reverse=spec.reverse)


def padded(sources: Sequence[SourceRow]) -> tuple[Tensor, Tensor]:
    """`[B, S]` ids or `[B, S, I]` numbers, and their lengths."""
    if sources[0].ndim == 1:
        return pad(sources)
    return torch.from_numpy(np.stack(sources)), torch.tensor([len(source) for source in sources])


def spelled(tokenizer: Tokenizer, ids: Sequence[int]) -> tuple[str, ...]:
    return tuple(END if token == tokenizer.end_id else tokenizer.decode([token]) or f"#{token}" for token in ids)


# -------------------------------------------------------------------- series


def learn_levels(targets: Sequence[str], where: Sequence[Where], count: int) -> Tokenizer:
    """A vocabulary of numbers, equally far apart, from the least to the greatest of the training part."""
    values = np.concatenate([numbers_in(text, where=at) for text, at in zip(targets, where)])
    low, high = float(values.min()), float(values.max())
    step = (high - low) / (count - 1)
    decimals = max(0, 1 - math.floor(math.log10(step))) if step else 6
    names = [f"{value + 0.0:.{decimals}f}" for value in np.linspace(low, high, count).round(decimals)]
    return Tokenizer.train("word", [" ".join(dict.fromkeys(names))])


@final
class Levels:
    """Rounds the numbers of a series to those of a vocabulary; beyond its ends, to the end."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        special = {tokenizer.end_id, tokenizer.unknown_id}
        names = [tokenizer.decode([one]) for one in range(tokenizer.vocab) if one not in special]
        self._names = sorted(names, key=float)
        self._between = np.array([float(name) for name in self._names])
        self._between = (self._between[1:] + self._between[:-1]) / 2

    def rounded(self, text: str, where: object) -> str:
        at_T = np.searchsorted(self._between, numbers_in(text, where=where))
        return " ".join(self._names[at] for at in at_T)


def mean_series(targets: Sequence[str]) -> str:
    """At every time step the mean of the series that reach it: what to write without having read anything."""
    rows = [numbers_in(text, where="a target") for text in targets]
    longest = round(float(np.mean([len(row) for row in rows])))
    return " ".join(f"{np.mean([row[t] for row in rows if t < len(row)]):.6g}" for t in range(longest))


def series_errors(written: Sequence[str], true: Sequence[str]) -> dict[str, float]:
    """MSE and MAE over all time steps of the true series. One that ends early goes on with its last value."""
    apart = []
    for guess, target in zip(written, true, strict=True):
        target_T = numbers_in(target, where="a target")
        guess_T = numbers_in(guess or "0", where="a series")[: len(target_T)]
        apart.append(np.pad(guess_T, (0, len(target_T) - len(guess_T)), mode="edge") - target_T)
    apart_M = np.concatenate(apart)
    return {"mse": float(np.square(apart_M).mean()), "mae": float(np.abs(apart_M).mean())}
