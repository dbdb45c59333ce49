"""Labelled texts: tables, lines that start with their label, folders of labels."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple, TypedDict, Unpack

from statewise.data.hub import hub_name, read_rows
from statewise.data.lines import UTF8, Examples, Paths, Where, path_list, read_lines, refuse_empty, suffix
from statewise.data.table import FORMATS, Column, Header, Row, TableFormat, column_settings
from statewise.specs import UserError, setting

LabelledFormat = Literal["auto", "csv", "tsv", "quoted-tsv", "jsonl", "label-first", "folder"]
TextFormat = Literal["auto", "csv", "tsv", "quoted-tsv", "jsonl", "lines"]
Empty = Literal["refuse", "skip", "keep"]


class Labelled(NamedTuple):
    text: str
    label: str
    where: Where


class Text(NamedTuple):
    text: str
    where: Where


class LabelledOptions(TypedDict, total=False):
    """Options of `labelled_rows` that its callers pass on."""

    text: Column
    label: Column
    format: LabelledFormat
    header: Header
    delimiter: str | None
    empty: Empty
    leave_out: Collection[str]
    encoding: str


def read_labelled(paths: Paths, **options: Unpack[LabelledOptions]) -> Examples[Labelled]:
    """Texts with a label each: `labelled_rows`, with their counts."""
    counts: Counter[str] = Counter()
    return Examples(labelled_rows(paths, counts, **options), counts)


def labelled_rows(
    paths: Paths,
    counts: Counter[str],
    *,
    text: Column = "text",
    label: Column = "label",
    format: LabelledFormat = "auto",
    header: Header = "auto",
    delimiter: str | None = None,
    empty: Empty = "refuse",
    leave_out: Collection[str] = (),
    encoding: str = UTF8,
) -> Iterator[Labelled]:
    """Texts with a label each, one at a time. Columns are named, or numbered from 0 (see `table_rows`).

    `label-first` is a label, white space, and the text. A folder has `<label>.txt` files with one example per line, or
    one folder per label with one example per file; files next to such folders are ignored. Examples with a label in
    `leave_out` are left out, for instance `unsup` of IMDB. `empty`: what to do with an example without text; skipped
    ones are counted.
    """
    excluded: Counter[str] = Counter()
    kept = 0
    for path in path_list(paths):
        kind = _format_of(path) if format == "auto" else format
        match kind:
            case "folder":
                of_file = _folder(path, counts, encoding)
            case "label-first":
                of_file = _label_first(path, counts, encoding)
            case _:
                rows = read_rows(
                    path,
                    counts,
                    format=kind,
                    header=header,
                    columns={"data.text": text, "data.label": label},
                    delimiter=delimiter,
                    encoding=encoding,
                )
                of_file = labelled_columns(rows, text=text, label=label)
        for example in of_file:
            if example.label in leave_out:
                excluded[example.label] += 1
            elif _has_text(example, counts, empty):
                kept += 1
                yield example
    counts.update({excluded_label(label): count for label, count in excluded.items()})
    refuse_empty(kept, paths, "labelled example")


def excluded_label(label: str) -> str:
    """The key under which examples of an excluded label are counted."""
    return f"of label {label!r}"


def labelled_columns(rows: Iterable[Row], *, text: Column, label: Column) -> Iterator[Labelled]:
    """Texts and labels from two columns of a table."""
    return (Labelled(row.text(text), _label(row, label), row.where) for row in rows)


def read_texts(
    paths: Paths,
    *,
    text: Column | tuple[Column, ...] = "text",
    numbers: bool = False,
    format: TextFormat = "auto",
    header: Header = "auto",
    delimiter: str | None = None,
    encoding: str = UTF8,
) -> Examples[Text]:
    """Texts without labels, to predict on. In plain files (`lines`) each line is one.

    An empty line is an empty text, also in a table, so predictions stay aligned. With `numbers`, a text is a list of
    them, in one column or several.
    """
    texts: Examples[Text] = Examples()
    for path in path_list(paths):
        kind: TextFormat = FORMATS.get(suffix(path)) or "lines" if format == "auto" else format
        if kind == "lines" and hub_name(path) is None:
            texts += [Text(line.text, line.where) for line in read_lines(path, encoding=encoding)]
            continue
        rows = read_rows(
            path,
            texts.counts,
            format="auto" if kind == "lines" else kind,
            header=header,
            columns=column_settings("data.text", text),
            delimiter=delimiter,
            encoding=encoding,
            keep_empty=True,
        )
        texts += [Text(row.text(text, numbers=numbers) if row.cells else "", row.where) for row in rows]
    return texts


def _format_of(path: Path) -> TableFormat | Literal["folder"]:
    if path.is_dir():
        return "folder"
    if hub_name(path) is not None:
        return "auto"
    if suffix(path) not in FORMATS and path.exists():
        raise UserError(
            f"{str(path)!r}: the file name does not tell the format of text and label",
            fix=f"name it (csv, tsv, quoted-tsv, jsonl or label-first): {setting('data.format', 'label-first')}",
        )
    return FORMATS.get(suffix(path), "tsv")


def _label(row: Row, column: Column) -> str:
    label = row.text(column).strip()
    if not label:
        raise UserError(f"{row.where}: the label in column {column!r} is empty", fix="every example needs one")
    if "\n" in label or "\r" in label:
        raise UserError(
            f"{row.where}: the label {label!r} holds a line end",
            fix="write it on one line: predictions are a label a line",
        )
    return label


def _label_first(path: Path, counts: Counter[str], encoding: str) -> Iterator[Labelled]:
    for line in read_lines(path, encoding=encoding):
        label, *text = line.text.split(maxsplit=1)[:2] if line.text.strip() else [""]
        if label:
            yield Labelled(text[0].rstrip() if text else "", label, line.where)
        else:
            counts["empty lines"] += 1


def _folder(path: Path, counts: Counter[str], encoding: str) -> Iterator[Labelled]:
    if not path.is_dir():
        raise UserError(f"{str(path)!r} is not a folder", fix="name the folder that holds the <label>.txt files")
    entries = sorted(entry for entry in path.iterdir() if not entry.name.startswith("."))
    if not entries:
        raise UserError(f"the folder {str(path)!r} is empty", fix="it should hold <label>.txt files")
    folders = [entry for entry in entries if entry.is_dir()]
    if folders:
        if beside := len(entries) - len(folders):
            counts["files beside the folders of labels"] += beside
        for folder in folders:
            for file in sorted(entry for entry in folder.iterdir() if not entry.name.startswith(".")):
                text = "\n".join(line.text for line in read_lines(file, encoding=encoding))
                yield Labelled(text, folder.name, Where(str(file), 1))
        return
    for entry in entries:
        if suffix(entry) != ".txt":
            raise UserError(
                f"{str(entry)!r} is not a <label>.txt file, as others in its folder are",
                fix="the folder holds <label>.txt files and nothing else, or one folder per label",
            )
        label = entry.name.removesuffix(".gz")[: -len(".txt")]
        for line in read_lines(entry, encoding=encoding):
            if line.text.strip():
                yield Labelled(line.text.strip(), label, line.where)
            else:
                counts["empty lines"] += 1


def _has_text(example: Labelled, counts: Counter[str], empty: Empty) -> bool:
    if empty == "keep" or example.text.strip():
        return True
    if empty == "refuse":
        raise UserError(
            f"{example.where}: the text is empty (label {example.label!r})",
            fix=f"correct or remove it, or skip such rows: {setting('data.empty', 'skip')} (or keep)",
        )
    counts["empty texts"] += 1
    return False
