"""Texts, labels, pairs, tags and trees in memory, as the files that tasks read: plain text, or JSON lines."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from statewise.data.lines import Line, Where
from statewise.data.memory_object import (
    Data,
    MemoryFile,
    Role,
    Rows,
    array_of,
    is_missing,
    library_type,
    listed,
    rows_of,
    shown,
    table_of,
)
from statewise.data.tagged import TAGS, WORDS
from statewise.data.trees import LabelledTree, bracketed
from statewise.specs import DataSpec, LabelledDataSpec, PairDataSpec, TaggedDataSpec, TreeDataSpec, UserError, nearest

# Common names of the columns of labels and texts.
LABEL_NAMES = frozenset(
    {"label", "labels", "class", "category", "sentiment", "polarity", "rating", "stars", "target", "topic", "intent"}
)
TEXT_NAMES = frozenset(
    {"text", "review", "sentence", "comment", "content", "body", "question", "document", "tweet", "title"}
)
_SOURCE_NAMES, _TARGET_NAMES = frozenset({"source", "src"}), frozenset({"target", "tgt"})
_WORD_NAMES = frozenset({WORDS, "words"})
_TAG_NAMES = frozenset({TAGS, "ner_tags", "pos_tags", "upos", "labels"})
_TREE_NAMES = frozenset({"tree", "trees", "parse"})
_NUMBERS = '; rows of numbers are settings={"data.kind": "values"}'
_SEPARATORS = ("\x1e", "\x1f", "\x1c", "\x1d")  # ASCII's record separators: not used in text
_JSON_SETTINGS: Mapping[str, Any] = {"format": "auto", "header": "auto", "delimiter": None, "encoding": "utf-8"}
_LINE_BREAKS = re.compile(r"[\n\r\v\f]+")


def text_file(spec: DataSpec, data: Data, *, training: bool) -> MemoryFile:
    """A string is one document; a list or a column holds several."""
    default = type(spec).model_fields["text_column"].default
    role = Role("text", "data.text_column", spec.text_column, default, TEXT_NAMES, _is_text)
    cells = [data] if isinstance(data, str) else rows_of(data, [role], training=training).columns[0]
    documents = _texts(cells, "text")
    for number, document in enumerate(documents):
        if "\0" in document:
            raise UserError(f"row {number}: character {document.index(chr(0))} of the text is zero", fix="remove it")
    separator = spec.separator
    if len(documents) > 1 and separator is None:
        free = (mark for mark in _SEPARATORS if not any(mark in document for document in documents))
        separator = next(free, None)
        if separator is None:
            raise UserError(
                "the documents hold every character that could part them",
                fix='say what ends a document: settings={"data.separator": "..."}',
            )
    whole = (separator or "").join(documents).encode()
    adjusted = spec.model_copy(update={"separator": separator})
    return MemoryFile("data.txt", whole, adjusted, len(documents), unit="document")


def labelled_file(spec: LabelledDataSpec, data: Data, *, labelled: bool, training: bool) -> MemoryFile:
    """Texts and their labels. In training, columns keep their names."""
    fields = type(spec).model_fields
    roles = [
        Role("text", "data.text", spec.text, fields["text"].default, TEXT_NAMES, _is_text, _NUMBERS),
        Role("label", "data.label", spec.label, fields["label"].default, LABEL_NAMES | {"y"}, _is_label),
    ][: 1 + labelled]
    rows = rows_of([data] if isinstance(data, str) else data, roles, training=training)
    columns = [_texts(rows.columns[0], "text"), *map(labels_of, rows.columns[1:])]
    own = [spec.text if isinstance(spec.text, str) else "text", spec.label if isinstance(spec.label, str) else "label"]
    names = [*rows.names, *own[len(rows.names) :]] if training else own
    if names[0] == names[1]:
        raise UserError(f"column {names[0]!r} is named for the text and for the label", fix="name another for one")
    adjusted = spec.model_copy(update={**_JSON_SETTINGS, "text": names[0], "label": names[1]})
    return _json_lines(names, columns, adjusted, note=_note(roles, rows))


def pair_file(spec: PairDataSpec, data: Data, *, labelled: bool, training: bool) -> MemoryFile:
    """Sources and their targets; a class may be a whole number, a vector and a series are lists of numbers."""
    if training and spec.target:
        raise UserError("data.target names files, but the data in memory holds both sides", fix="leave data.target out")
    fields = type(spec).model_fields
    source = spec.source_column
    if isinstance(source, tuple):
        data, source = _with_vectors(data, source), fields["source_column"].default
    chosen: tuple[str | int, str | int] = (source, spec.target_column)
    kinds = (spec.source_kind, spec.target_kind)
    roles = [
        Role(what, f"data.{what}_column", column, fields[f"{what}_column"].default, usual, _FITS[kind])
        for what, column, usual, kind in zip(("source", "target"), chosen, (_SOURCE_NAMES, _TARGET_NAMES), kinds)
    ][: 1 + labelled]
    rows = rows_of([data] if isinstance(data, str) else data, roles, training=training)
    columns = [_written(cells, role.what, kind) for cells, role, kind in zip(rows.columns, roles, kinds)]
    names = [
        column_name if isinstance(column_name, str) else what for column_name, what in zip(chosen, ("source", "target"))
    ]
    # By default columns are numbered, so that files without names can be read with the same settings.
    kept: Sequence[str | int] = chosen if chosen == (0, 1) else names
    update = {**_JSON_SETTINGS, "language": None, "source_column": kept[0], "target_column": kept[1]}
    return _json_lines(names, columns, spec.model_copy(update=update), note=_note(roles, rows))


def _with_vectors(data: Data, columns: tuple[str | int, ...]) -> Data:
    """A table whose `columns` of numbers have become one, of vectors."""
    table = table_of(data)
    if table is None:
        return data
    known = list(table.columns)
    names = [known[column] if isinstance(column, int) and column < len(known) else str(column) for column in columns]
    for name in names:
        if name not in known:
            raise UserError(f"the {table.kind} has no column {name!r}", fix=nearest(name, known))
    vectors = list(zip(*(table.columns[name] for name in names), strict=True))
    return {"source": vectors, **{name: cells for name, cells in table.columns.items() if name not in names}}


def _written(cells: Sequence[Any], what: str, kind: str) -> list[str]:
    if kind == "text":
        return _texts(cells, what)
    if kind == "class":
        return labels_of(cells)
    return [cell if isinstance(cell, str) else _numbers(cell, f"row {n}: the {what}") for n, cell in enumerate(cells)]


def _numbers(cell: Any, what: str) -> str:
    found = array_of(cell)
    if found is None or found.ndim != 1 or not found.size or not np.isfinite(found).all():
        raise UserError(f"{what} is {shown(cell)}, expected finite numbers", fix="give a list of numbers")
    return " ".join(repr(float(value)) for value in found)


def tagged_file(spec: TaggedDataSpec, data: Data, *, labelled: bool, training: bool) -> MemoryFile:
    """Sentences: a list of words each, and one of their tags."""
    roles = [
        Role("tokens", "data.word", WORDS if spec.word is None else spec.word, WORDS, _WORD_NAMES, _is_list),
        Role("tags", "data.tag", TAGS if spec.tag is None else spec.tag, TAGS, _TAG_NAMES, _is_list),
    ][: 1 + labelled]
    if not labelled:
        data = _sentences(data)
    rows = rows_of(data, roles, training=training)
    columns = [
        [_words(cell, number, role.what) for number, cell in enumerate(cells)]
        for cells, role in zip(rows.columns, roles)
    ]
    for number, (words, tags) in enumerate(zip(*columns) if labelled else ()):
        if len(words) != len(tags):
            raise UserError(f"row {number}: {len(words)} tokens, but {len(tags)} tags", fix="give each token a tag")
    chosen = [column_name if isinstance(column_name, str) else None for column_name in (spec.word, spec.tag)]
    update = {"format": "auto", "encoding": "utf-8", "word": chosen[0], "tag": chosen[1]}
    names = [column_name or usual for column_name, usual in zip(chosen, (WORDS, TAGS))]
    return _json_lines(names, columns, spec.model_copy(update=update), note=_note(roles, rows))


def _sentences(data: Data) -> Data:
    """Texts split into words. A flat list of words is refused: one sentence, or one for each word?"""
    if isinstance(data, str):
        return [data.split()]
    items = listed(data)
    if not items or not any(isinstance(item, str) for item in items):
        return data
    words = [item.split() if isinstance(item, str) else item for item in items]
    if len(words) > 1 and all(isinstance(item, str) and len(item.split()) == 1 for item in items):
        raise UserError(
            f"{shown(items)} could be one sentence, or {len(items)} of one word each",
            fix="give a list of sentences: [[word, word, ...]] for one, [[word], [word]] for two",
        )
    return words


def tree_file(spec: TreeDataSpec, data: Data, *, training: bool) -> MemoryFile:
    """Trees in brackets, one per line. A string may hold several."""
    role = Role("tree", "", None, None, _TREE_NAMES, _is_tree)
    if isinstance(data, str):
        lines = (Line(line, Where("the text", at)) for at, line in enumerate(_text(data, "the data").split("\n"), 1))
        trees = [_LINE_BREAKS.sub(" ", text) for text, _ in bracketed(lines) if text is not None]
    else:
        cells = [data] if is_nltk_tree(data) else rows_of(data, [role], training=training).columns[0]
        trees = [_tree(cell, number) for number, cell in enumerate(cells)]
    content = "".join(f"{tree}\n" for tree in trees).encode()
    return MemoryFile("data.txt", content, spec.model_copy(update={"encoding": "utf-8"}), len(trees), unit="tree")


def _tree(cell: Any, number: int) -> str:
    where = Where("the data", number, "row")
    if is_nltk_tree(cell):
        tree = LabelledTree(cell, where)
        return tree.written_with(tree.labels())
    text = _LINE_BREAKS.sub(" ", _text(cell, f"row {number}: the tree"))
    try:
        trees = [tree_text for tree_text, _ in bracketed([Line(text, where)]) if tree_text is not None]
    except UserError as error:
        raise UserError(error.what.replace(str(where), f"row {number}"), fix=error.fix) from None
    if len(trees) != 1:
        raise UserError(f"row {number} holds {len(trees)} trees, expected one: {shown(text)}", fix="one tree a row")
    return trees[0]


def _is_text(cell: Any) -> bool:
    return isinstance(cell, str)


def _is_label(cell: Any) -> bool:
    return isinstance(cell, str | bool | int | np.integer | np.bool_)


def _is_list(cell: Any) -> bool:
    return isinstance(cell, list | tuple | np.ndarray)


def _is_numbers(cell: Any) -> bool:
    return array_of(cell) is not None


_FITS = {"text": _is_text, "class": _is_label, "vector": _is_numbers, "series": _is_numbers}


def _is_tree(cell: Any) -> bool:
    return is_nltk_tree(cell) or (isinstance(cell, str) and cell.lstrip().startswith("("))


def is_nltk_tree(data: Any) -> bool:
    return library_type(data) == "nltk.Tree"


def _texts(cells: Sequence[Any], what: str) -> list[str]:
    return [_text(cell, f"row {number}: the {what}") for number, cell in enumerate(cells)]


def _text(cell: Any, what: str) -> str:
    if is_missing(cell):
        raise UserError(f"{what} is missing ({cell})", fix="fill it in, or leave the row out")
    if not isinstance(cell, str):
        raise UserError(f"{what} is {shown(cell)}, expected a string", fix="give a string, or leave the row out")
    try:
        cell.encode()
    except UnicodeEncodeError as error:
        raise UserError(f"{what} has half a character at {error.start}", fix="correct or remove it") from None
    return cell


def labels_of(cells: Sequence[Any]) -> list[str]:
    """Names of classes. Whole numbers and truth values are written as Python writes them."""
    return [_label(cell, f"row {number}: the label") for number, cell in enumerate(cells)]


def _label(cell: Any, what: str) -> str:
    cell = cell.item() if isinstance(cell, np.generic) else cell
    if is_missing(cell):
        raise UserError(f"{what} is missing ({cell})", fix="fill it in, or leave the row out")
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    if isinstance(cell, bool | int):
        return str(cell)
    if not isinstance(cell, str):
        raise UserError(f"{what} is {shown(cell)}, expected a name or a whole number", fix="give one of these")
    return _text(cell, what)


def _words(cell: Any, number: int, what: str) -> list[str]:
    cells = listed(cell)
    if cells is None:
        raise UserError(f"row {number}: the {what} are {shown(cell)}, expected a list of strings", fix="give a list")
    if what == "tags":
        return [_label(item, f"row {number}: tag {place}") for place, item in enumerate(cells)]
    return [_text(item, f"row {number}: token {place}") for place, item in enumerate(cells)]


def _json_lines(names: Sequence[str], columns: Sequence[Sequence[Any]], data: Any, *, note: str) -> MemoryFile:
    lines = (json.dumps(dict(zip(names, row)), ensure_ascii=False) for row in zip(*columns))
    return MemoryFile("data.jsonl", "".join(f"{line}\n" for line in lines).encode(), data, len(columns[0]), note=note)


def _note(roles: Sequence[Role], rows: Rows) -> str:
    """Which columns were chosen without being named."""
    pairs = zip(roles, rows.names)
    parts = [f"{role.what} from column {name!r}" for role, name in pairs if name != role.column]
    return f"; {', '.join(parts)}" if parts else ""
