"""What a classifier reads: texts as tokens, sequences or grids of real values; each with its label.

B batch, T time, H height, W width, C values at each time step or in each cell.
"""

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from statewise.core import onto
from statewise.data import (
    AT_ONCE,
    LABEL_NAMES,
    TEXT_NAMES,
    Arrays,
    DiskRows,
    ExampleWriter,
    Grids,
    HeldOut,
    Labelled,
    Scaling,
    Tokenizer,
    Where,
    chosen,
    excluded_label,
    hold_out,
    labelled_rows,
    lengths_of,
    mapped,
    names_examples,
    open_examples,
    pad,
    read_arrays,
    read_grids,
    read_labelled,
    refuse_examples,
    some_at_once,
)
from statewise.data.embedded import Parts, digits, docstrings, passages, recall
from statewise.specs import ClassificationSpec, LabelledDataSpec, UserError, from_json, nearest, option, read_small
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


def read_rows(spec: LabelledDataSpec, paths: Sequence[str], *, labelled: bool = True) -> Labels:
    """Rows of files in the spec's format; texts without a label are read by `read_texts`."""
    refuse_examples(paths)
    if spec.kind == "text":
        rows = read_labelled(paths, **_of_texts_in_files(spec))
        return _of_texts(rows, rows.counts)
    if spec.format in ("label-first", "folder"):
        raise UserError(f"data.format = {spec.format!r} holds texts, not values", fix="use an .npz, CSV or TSV")
    return _of_arrays([_arrays(spec, path, labelled) for path in paths], vectors=spec.kind == "vector")


def _of_arrays(parts: Sequence[Arrays | Grids], *, vectors: bool) -> Labels:
    """With `vectors`, all numbers of a row are one time step."""
    return Labels(
        [values.reshape(1, -1) if vectors else values for part in parts for values in part[0]],
        [label for part in parts for label in part.labels],
        [where for part in parts for where in part.where],
    )


def _arrays(spec: LabelledDataSpec, path: str, labelled: bool) -> Arrays | Grids:
    """`data.npz`, or `data.npz:x_test:y_test` where other arrays than the spec's are meant; labels only if needed."""
    values, label = spec.values, spec.label
    name, colon, arrays = path.rpartition(".npz:")
    if colon and not Path(path).exists():
        path = f"{name}.npz"
        values, *others = arrays.split(":")
        if len(others) > 1 or (labelled and not others):
            raise UserError(
                f"{path}:{arrays} does not name two arrays",
                fix=f"that of the values and that of the labels: {path}:x:y",
            )
        label = others[0] if others else label
    if path.startswith("hub:"):
        raise UserError(f"{path!r}: datasets of the hub are read as texts, not as {spec.kind}", fix="use an .npz")
    if spec.kind == "grid":
        return read_grids(path, values=values, label=str(label), labelled=labelled)
    table = spec.subset(*spec.layout_of_table)
    return read_arrays(path, values=values, label=label, labelled=labelled, **table)


def _of_texts(rows: Sequence[Labelled], left_out: Mapping[str, int]) -> Labels:
    return Labels([row.text for row in rows], [row.label for row in rows], [row.where for row in rows], left_out)


def read_split(spec: LabelledDataSpec, *, seed: int) -> tuple[Labels, Labels]:
    """What is learned from and what is held out."""
    if "-" in (*spec.train, *spec.validation):
        raise UserError("rows cannot be learned from standard input: they are read again later", fix="name files")
    if not spec.train:
        if spec.kind == "values":
            raise UserError("there are no embedded values with labels", fix=f"name a file: {option('data', 'FILE')}")
        if spec.kind == "text":
            embedded = _embedded(spec, seed=seed)
            return _of_texts(embedded.train, {}), _of_texts(embedded.held, {})
    if names_examples(spec.train):
        return stored_rows(spec)
    rows = read_rows(spec, spec.train) if spec.train else _of_arrays([digits()], vectors=spec.kind == "vector")
    _refuse_misread(spec, rows)
    if spec.validation:
        return rows, read_rows(spec, spec.validation)
    split = hold_out(len(rows.labels), share=spec.held_out, seed=seed, strata=rows.labels)
    return rows.chosen(split.train_N), rows.chosen(split.held_M)


# -------------------------------------------------------------------- on disk


def store_rows(run: ClassificationSpec, writer: ExampleWriter) -> None:
    """Labelled texts of any number in columns: texts, labels, and ids by the vocabulary that is learned from them."""
    spec = run.data
    if spec.kind != "text":
        raise UserError(f"data.kind = {spec.kind!r}: only texts are kept on disk", fix="train on the files")
    left_out: Counter[str] = Counter()
    kinds: dict[str, int] = {}

    def put(rows: Iterable[Labelled]) -> int:
        for some in some_at_once(rows):
            writer.texts("text", [row.text for row in some])
            writer.numbers("label", [kinds.setdefault(row.label, len(kinds)) for row in some])
            writer.places(row.where for row in some)
        return writer.rows("text")

    count = first = put(labelled_rows(spec.train, left_out, **_of_texts_in_files(spec)))
    learned = list(kinds)
    if spec.validation:
        count = put(labelled_rows(spec.validation, Counter(), **_of_texts_in_files(spec)))
    writer.texts("label_names", list(kinds))
    read = writer.read()
    whole = Labels(read.texts("text"), read.names("label"), read.places(), left_out)
    _refuse_misread(spec, whole.chosen(np.arange(first)), names=learned)
    if spec.validation:
        split = HeldOut(np.arange(first), np.arange(first, count))
    else:
        split = hold_out(count, share=spec.held_out, seed=run.seed, strata=whole.labels)
    writer.parts(*split)
    train = whole.chosen(split.train_N)
    encoding = learn_encoding(run, train)
    assert isinstance(encoding, TextEncoding)
    tokenizer = encoding.tokenizer
    for begin in range(0, count, AT_ONCE):
        part = whole.chosen(np.arange(begin, min(begin + AT_ONCE, count)))
        writer.ids("ids", tokenizer.encode_many(list(part.content)), vocab=tokenizer.vocab)
        writer.encoded(begin + len(part.labels), count)
    ids = writer.read().ids("ids", below=tokenizer.vocab)
    for name, content in encoding.files().items():
        writer.file(name, str(content))
    writer.facts |= {
        "rows": count,
        "left_out": dict(left_out),
        "sha256": train.sha256,
        **{f"unknown_{name}": tokenizer.unknown_share(ids.chosen(part)) for name, part in split._asdict().items()},
    }


def stored_rows(spec: LabelledDataSpec) -> tuple[Labels, Labels]:
    folder = open_examples(Path(spec.train[0]), "classification")
    encoding = load_encoding(spec, folder.path)
    assert isinstance(encoding, TextEncoding)
    tokenizer = encoding.tokenizer
    ids, sha256 = folder.ids("ids", below=tokenizer.vocab), folder.fact("sha256", str)
    texts = folder.texts("text"), folder.names("label"), folder.places(), folder.fact("left_out", dict)
    train, held = (
        Labels(*texts, Encoded(ids, folder.fact(f"unknown_{part}", float), tokenizer.sha256, sha256))
        for part in ("train_N", "held_M")
    )
    return train.chosen(folder.part("train")), held.chosen(folder.part("validation"))


def _of_texts_in_files(spec: LabelledDataSpec) -> dict[str, Any]:
    return spec.subset(*spec.layout_of_table, "text", "label", "empty", "leave_out")


def _embedded(spec: LabelledDataSpec, *, seed: int) -> Parts[Labelled]:
    match spec.embedded:
        case "recall":
            return recall(distance=spec.distance, longer=spec.longer, seed=seed)
        case "passages":
            return passages(distance=spec.distance, seed=seed)
        case "docstrings":
            return docstrings()


def _refuse_misread(spec: LabelledDataSpec, rows: Labels, *, names: Sequence[str] | None = None) -> None:
    """Labels to leave out that no row has; and a header that was read as a row.

    Columns by number are read without a header; a line of names would be a class of its own with one row.
    """
    for label in spec.leave_out:
        if excluded_label(label) not in rows.left_out:
            known = set(rows.labels if names is None else names)
            raise UserError(f"data.leave_out: no row has the label {label!r}", fix=nearest(label, known))
    if spec.kind != "text" or isinstance(spec.label, str):
        return
    counts = Counter(rows.labels)
    for at, label in enumerate(rows.labels):
        if counts[label] > 1 or rows.where[at].line != 1:
            continue
        text = rows.content[at]
        if label.lower() in LABEL_NAMES or text.strip().lower() in TEXT_NAMES:
            raise UserError(
                f"{rows.where[at]}: {label!r} and {text!r} look like names of columns, and no other row has that label",
                fix="set data.header = yes",
            )
