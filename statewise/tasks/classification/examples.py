"""What a classifier reads: texts as tokens, or sequences of real values; each with its label.

B batch, T time, C values at each moment.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from statewise.data import Arrays, Labelled, Tokenizer, Where, hold_out, pad, read_arrays, read_labelled
from statewise.data.embedded import docstrings
from statewise.data.scaling import Scaling
from statewise.specs import LabelledDataSpec, UserError
from statewise.training.checkpoint import Payload


class Batch(NamedTuple):
    source: Tensor  # [B, T] tokens or [B, T, C] values
    lengths_B: Tensor

    def to(self, device: torch.device) -> "Batch":
        return Batch(*(part.to(device, non_blocking=True) for part in self))


class Rows(NamedTuple):
    """Sequences, ready to be read. `cut` of them were longer than the spec allows."""

    sequences: Sequence[NDArray[Any]]
    cut: int

    def __len__(self) -> int:
        return len(self.sequences)

    @property
    def lengths(self) -> list[int]:
        return [len(sequence) for sequence in self.sequences]

    def batch(self, index: NDArray[np.int64]) -> Batch:
        chosen = [self.sequences[i] for i in index]
        if chosen[0].ndim == 1:
            return Batch(*pad(chosen))
        lengths_B = torch.tensor([len(values_TC) for values_TC in chosen])
        padded = torch.zeros(len(chosen), int(lengths_B.max()), chosen[0].shape[1])
        for row, values_TC in enumerate(chosen):
            padded[row, : len(values_TC)] = torch.from_numpy(values_TC)
        return Batch(padded, lengths_B)


class Labels(NamedTuple):
    """Texts or values with their labels and places, as they were read."""

    content: Sequence[Any]
    labels: list[str]
    where: list[Where]

    def chosen(self, index: NDArray[np.int64]) -> "Labels":
        return Labels(*([part[i] for i in index] for part in self))


class Encoding(Protocol):
    """From what was read to what a model reads; kept with the weights."""

    def encode(self, content: Sequence[Any]) -> Rows: ...

    def files(self) -> dict[str, Payload]: ...

    def model_input(self) -> dict[str, int]:
        """What `build_classifier` has to know of the input."""


class TextEncoding(NamedTuple):
    tokenizer: Tokenizer
    longest: int

    def encode(self, content: Sequence[str]) -> Rows:
        ids = self.tokenizer.encode_many(list(content))
        nothing = np.array([self.tokenizer.end_id])  # a text without a token is still a row
        cut = sum(len(one) > self.longest for one in ids)
        return Rows([one[: self.longest] if len(one) else nothing for one in ids], cut)

    def files(self) -> dict[str, Payload]:
        return {"tokenizer.json": self.tokenizer.to_json()}

    def model_input(self) -> dict[str, int]:
        return {"vocab": self.tokenizer.vocab}


class ValueEncoding(NamedTuple):
    scaling: Scaling
    longest: int

    def encode(self, content: Sequence[NDArray[np.float32]]) -> Rows:
        channels = len(self.scaling.mean_C)
        for values_TC in content[:1]:
            if values_TC.shape[1] != channels:
                raise UserError(f"{values_TC.shape[1]} values at each moment, but training had {channels}")
        scaled = [self.scaling.scaled(values_TC.astype(np.float64)).astype(np.float32) for values_TC in content]
        return Rows([one[: self.longest] for one in scaled], sum(len(one) > self.longest for one in scaled))

    def files(self) -> dict[str, Payload]:
        return {"scaling.json": json.dumps(self.scaling.to_json()) + "\n"}

    def model_input(self) -> dict[str, int]:
        return {"values": len(self.scaling.mean_C)}


def learn_encoding(spec: LabelledDataSpec, train: Labels) -> Encoding:
    """A vocabulary or a scaling, from the training part alone."""
    if spec.kind == "values":
        flat_NC = np.concatenate(list(train.content)).astype(np.float64)
        std_C = flat_NC.std(0)
        std_C[std_C == 0] = 1.0
        return ValueEncoding(Scaling(tuple(flat_NC.mean(0).tolist()), tuple(std_C.tolist())), spec.longest)
    named = Path(spec.tokenizer)
    if named.suffix == ".json":
        return TextEncoding(Tokenizer.load(named), spec.longest)
    tokenizer = Tokenizer.train(
        spec.tokenizer, train.content, vocab=spec.vocab, lower=spec.lower, min_count=spec.min_count
    )
    return TextEncoding(tokenizer, spec.longest)


def load_encoding(spec: LabelledDataSpec, folder: Path) -> Encoding:
    """What `files` left in a folder."""
    if spec.kind == "text":
        return TextEncoding(Tokenizer.load(folder / "tokenizer.json"), spec.longest)
    try:
        record = json.loads((folder / "scaling.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise UserError(f"{str(folder)!r}: scaling.json cannot be read") from None
    return ValueEncoding(Scaling.from_json(record), spec.longest)


def read_rows(spec: LabelledDataSpec, paths: Sequence[str]) -> Labels:
    """Labelled rows of files in the spec's format."""
    if spec.kind == "text":
        found = read_labelled(
            paths,
            text=spec.text,
            label=spec.label,
            format=spec.format,
            header=spec.header,
            empty=spec.empty,
        )
        return _of_texts(found)
    if spec.format in ("label-first", "folder"):
        raise UserError(f"data.format = {spec.format!r} holds texts, not values", fix="use an .npz, CSV or TSV")
    parts = [_arrays(spec, path) for path in paths]
    return Labels(
        [values_TC for part in parts for values_TC in part.values_NTC],
        [label for part in parts for label in part.labels],
        [where for part in parts for where in part.where],
    )


def _arrays(spec: LabelledDataSpec, path: str) -> Arrays:
    """`data.npz`, or `data.npz:x_test:y_test` where other arrays than the spec's are meant."""
    name, *arrays = path.split(":")
    if name.endswith(".npz") and len(arrays) == 2:
        return read_arrays(name, values=arrays[0], label=arrays[1])
    assert spec.format != "label-first"
    assert spec.format != "folder"
    return read_arrays(path, values=spec.values, label=spec.label, format=spec.format, header=spec.header)


def _of_texts(found: Sequence[Labelled]) -> Labels:
    return Labels([one.text for one in found], [one.label for one in found], [one.where for one in found])


def read_split(spec: LabelledDataSpec, *, seed: int) -> tuple[Labels, Labels]:
    """What is learned from and what is held out."""
    if not spec.train:
        if spec.kind == "values":
            raise UserError("there are no embedded values with labels", fix="name a file: --data FILE")
        embedded = docstrings()
        return _of_texts(embedded.train), _of_texts(embedded.held)
    rows = read_rows(spec, spec.train)
    if spec.validation:
        return rows, read_rows(spec, spec.validation)
    split = hold_out(len(rows.labels), share=spec.held_out, seed=seed, strata=rows.labels)
    return rows.chosen(split.train_N), rows.chosen(split.held_M)
