"""Where rows with labels come from: files, a folder of examples, or what is embedded."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from statewise.data import (
    AT_ONCE,
    LABEL_NAMES,
    TEXT_NAMES,
    Arrays,
    ExampleWriter,
    Grids,
    HeldOut,
    Labelled,
    excluded_label,
    hold_out,
    labelled_rows,
    names_examples,
    open_examples,
    read_arrays,
    read_grids,
    read_labelled,
    refuse_examples,
    some_at_once,
)
from statewise.data.embedded import Parts, digits, docstrings, passages, recall
from statewise.specs import ClassificationSpec, LabelledDataSpec, UserError, nearest, option
from statewise.tasks.classification.examples import Encoded, Labels, TextEncoding, learn_encoding, load_encoding


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
