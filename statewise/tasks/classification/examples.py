"""What a classifier reads: texts as tokens, sequences or grids of real values; each with its label.

B batch, T time, H height, W width, C values at each time step or in each cell.
"""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from statewise.core import onto
from statewise.data import (
    DiskRows,
    Scaling,
    Tokenizer,
    Where,
    chosen,
    lengths_of,
    mapped,
    pad,
)
from statewise.specs import ClassificationSpec, LabelledDataSpec, UserError, from_json, read_small
from statewise.tasks.folder import fingerprint
from statewise.training import Payload

Index = NDArray[np.int64]


class Batch(NamedTuple):
    source: Tensor  # [B, T] tokens, [B, T, C] values or [B, H, W, C] cells
    size_B: Tensor  # how much of each is real: [B] lengths, or [B, 2] heights and widths

    def to(self, device: torch.device) -> "Batch":
        return Batch(*(onto(device, part) for part in self))


class Rows(NamedTuple):
    """Sequences or grids, ready to be read. `cut` of them were longer than the spec allows.

    `unknown` is the share of all tokens that the vocabulary does not have; values are none.
    """

    sequences: Sequence[NDArray[Any]]
    cut: int
    unknown: float | None = None

    def __len__(self) -> int:
        return len(self.sequences)

    @property
    def lengths(self) -> Index:
        """Of each row, how many time steps or cells it has."""
        if isinstance(self.sequences, DiskRows):
            return self.sequences.lengths_N
        sizes = (math.prod(sequence.shape[: max(1, sequence.ndim - 1)]) for sequence in self.sequences)
        return np.fromiter(sizes, np.int64, len(self.sequences))

    def batch(self, index: Index) -> Batch:
        chosen = [self.sequences[i] for i in index]
        if chosen[0].ndim == 1:
            return Batch(*pad(chosen))
        sizes = torch.tensor([values.shape[:-1] for values in chosen])
        padded = torch.zeros(len(chosen), *sizes.amax(0).tolist(), chosen[0].shape[-1])
        for row, values in enumerate(chosen):
            inside = tuple(slice(size) for size in values.shape[:-1])
            padded[row][inside] = torch.from_numpy(values)
        return Batch(padded, sizes.squeeze(1) if sizes.shape[1] == 1 else sizes)


class Encoded(NamedTuple):
    """Texts on disk as ids, by the vocabulary of `made_by`; and what was found of the training part."""

    ids: Sequence[Index]
    unknown: float  # share of the tokens
    made_by: str  # sha256
    sha256: str


class Labels(NamedTuple):
    """Texts, values or grids with their labels and places, as they were read: lists, or rows on disk."""

    content: Sequence[Any]
    labels: Sequence[str]
    where: Sequence[Where]
    left_out: Mapping[str, int] = {}  # what of the files is not among them
    encoded: Encoded | None = None

    def chosen(self, index: Index) -> "Labels":
        content, labels, where = chosen(self.content, index), chosen(self.labels, index), chosen(self.where, index)
        encoded = self.encoded and self.encoded._replace(ids=chosen(self.encoded.ids, index))
        return Labels(content, labels, where, self.left_out, encoded)

    @property
    def sha256(self) -> str:
        return self.encoded.sha256 if self.encoded else fingerprint(self.labels, map(_written, self.content))


def _written(content: str | NDArray[Any]) -> str:
    """All of a row, for the fingerprint, in one type; NumPy writes only the ends of a long one."""
    if isinstance(content, str):
        return content
    with np.errstate(over="ignore"):  # what is infinite here is as different from all that is not
        return f"{content.shape}{content.astype(np.float32).tobytes().hex()}"


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
        return self.rows(ids, self.tokenizer.unknown_share(ids))

    def rows(self, ids: Sequence[Index], unknown: float) -> Rows:
        nothing = np.array([self.tokenizer.end_id])  # a text without a token is still a row
        cut = int((lengths_of(ids) > self.longest).sum())
        read = mapped(
            ids,
            lambda row: row[: self.longest] if len(row) else nothing,
            lambda length_N: np.minimum(length_N, self.longest).clip(min=1),
        )
        return Rows(read, cut, unknown)

    def files(self) -> dict[str, Payload]:
        return {"tokenizer.json": self.tokenizer.to_json()}

    def model_input(self) -> dict[str, int]:
        return {"vocab": self.tokenizer.vocab}


class ValueEncoding(NamedTuple):
    scaling: Scaling
    longest: int

    def encode(self, content: Sequence[NDArray[Any]]) -> Rows:
        channels = len(self.scaling.mean_C)
        for row, values_TC in enumerate(content):
            if values_TC.shape[1] != channels:
                raise UserError(
                    f"row {row}: {values_TC.shape[1]} values at each time step, but training had {channels}",
                    fix="give arrays of the shape that was learned from",
                )
        scaled = [self.scaling.scaled(values_TC.astype(np.float64)).astype(np.float32) for values_TC in content]
        return Rows([row[: self.longest] for row in scaled], sum(len(row) > self.longest for row in scaled))

    def files(self) -> dict[str, Payload]:
        return {"scaling.json": json.dumps(self.scaling.to_json()) + "\n"}

    def model_input(self) -> dict[str, int]:
        return {"values": len(self.scaling.mean_C)}


class GridEncoding(NamedTuple):
    """Grids as they are, or, for a model that reads sequences (`columns` wide), one row at each time step."""

    scaling: Scaling
    columns: int | None

    def encode(self, content: Sequence[NDArray[Any]]) -> Rows:
        channels = len(self.scaling.mean_C)
        for values_HWC in content:
            if values_HWC.shape[2] != channels:
                raise UserError(f"{values_HWC.shape[2]} values in each cell, but training had {channels}")
            if self.columns is not None and values_HWC.shape[1] != self.columns:
                raise UserError(
                    f"a grid is {values_HWC.shape[1]} wide, others are {self.columns}; this model reads it row by row",
                    fix="bring all to one width, or set model.kind = grid",
                )
        scaled = [self.scaling.scaled(values_HWC.astype(np.float64)).astype(np.float32) for values_HWC in content]
        return Rows(scaled if self.columns is None else [row.reshape(len(row), -1) for row in scaled], 0)

    def files(self) -> dict[str, Payload]:
        return {"scaling.json": json.dumps({**self.scaling.to_json(), "columns": self.columns}) + "\n"}

    def model_input(self) -> dict[str, int]:
        return {"values": len(self.scaling.mean_C) * (self.columns or 1)}


def encode(encoding: Encoding, rows: Labels) -> Rows:
    """Rows as a model reads them: ids from the disk, where the same vocabulary made them."""
    kept = rows.encoded
    if kept is None or not isinstance(encoding, TextEncoding) or kept.made_by != encoding.tokenizer.sha256:
        return encoding.encode(rows.content)
    return encoding.rows(kept.ids, kept.unknown)


def learn_encoding(run: ClassificationSpec, train: Labels) -> Encoding:
    """A vocabulary or a scaling, from the training part alone."""
    spec = run.data
    if train.encoded is not None:
        return load_encoding(spec, Path(spec.train[0]))
    if spec.kind != "text":
        scaling = _scaling(train.content)
        if spec.kind != "grid":
            return ValueEncoding(scaling, spec.longest)
        return GridEncoding(scaling, None if run.model.reads_cells else train.content[0].shape[1])
    named = Path(spec.tokenizer)
    if named.suffix == ".json":
        return TextEncoding(Tokenizer.load(named), spec.longest)
    tokenizer = Tokenizer.train(
        spec.tokenizer, train.content, vocab=spec.vocab, lower=spec.lower, min_count=spec.min_count
    )
    return TextEncoding(tokenizer, spec.longest)


def _scaling(content: Sequence[NDArray[Any]]) -> Scaling:
    for row in content:
        if row.shape[-1] != content[0].shape[-1]:
            raise UserError(f"files have {content[0].shape[-1]} and {row.shape[-1]} values at a place: use one number")
    flat_NC = np.concatenate([row.reshape(-1, row.shape[-1]) for row in content]).astype(np.float64)
    std_C = flat_NC.std(0)
    std_C[std_C == 0] = 1.0
    return Scaling(tuple(flat_NC.mean(0).tolist()), tuple(std_C.tolist()))


def load_encoding(spec: LabelledDataSpec, folder: Path) -> Encoding:
    """What `files` left in a folder."""
    if spec.kind == "text":
        return TextEncoding(Tokenizer.load(folder / "tokenizer.json"), spec.longest)
    try:
        record = from_json(read_small(folder / "scaling.json"))
        columns = record["columns"] if spec.kind == "grid" else None
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(f"{str(folder)!r}: scaling.json cannot be read") from None
    scaling = Scaling.from_json(record)
    return GridEncoding(scaling, columns) if spec.kind == "grid" else ValueEncoding(scaling, spec.longest)
