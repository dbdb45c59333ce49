"""Labelled texts: tables, lines that start with their label, folders of labels."""

from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

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


def read_labelled(
    paths: Paths,
    *,
    text: Column = "text",
    label: Column = "label",
    format: LabelledFormat = "auto",
    header: Header = "auto",
    delimiter: str | None = None,
    empty: Empty = "refuse",
    leave_out: Collection[str] = (),
    encoding: str = UTF8,
) -> Examples[Labelled]:
    """Texts with a label each. Columns are named, or numbered from 0 (see `read_table`).

    `label-first` is a label, white space, and the text. A folder has `<label>.txt` files with one example per line, or
    one folder per label with one example per file; files next to such folders are ignored. Examples with a label in
    `leave_out` are left out, for instance `unsup` of IMDB. `empty`: what to do with an example without text; skipped
    ones are counted.
    """
    examples: Examples[Labelled] = Examples()
    excluded: Counter[str] = Counter()
    for path in path_list(paths):
        kind = _format_of(path) if format == "auto" else format
        match kind:
            case "folder":
                of_file = Examples(_folder(path, examples, encoding))
            case "label-first":
                of_file = Examples(_label_first(path, examples, encoding))
            case _:
                rows = read_rows(
                    path,
                    format=kind,
                    header=header,
                    columns={"data.text": text, "data.label": label},
                    delimiter=delimiter,
                    encoding=encoding,
                )
                of_file = labelled_columns(rows, text=text, label=label)
        examples.counts += of_file.counts
        excluded.update(example.label for example in of_file if example.label in leave_out)
        examples += _with_text(
            Examples(example for example in of_file if example.label not in leave_out), examples, empty
        )
    examples.counts.update({excluded_label(label): count for label, count in excluded.items()})
    refuse_empty(examples, paths, "labelled example")
    return examples


def excluded_label(label: str) -> str:
    """The key under which examples of an excluded label are counted."""
    return f"of label {label!r}"


def labelled_columns(rows: Examples[Row], *, text: Column, label: Column) -> Examples[Labelled]:
    """Texts and labels from two columns of a table."""
    examples = (Labelled(row.text(text), _label(row, label), row.where) for row in rows)
    return Examples(examples, rows.counts)


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
            format="auto" if kind == "lines" else kind,
            header=header,
            columns=column_settings("data.text", text),
            delimiter=delimiter,
            encoding=encoding,
            keep_empty=True,
        )
        texts.counts += rows.counts
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


def _label_first(path: Path, examples: Examples[Labelled], encoding: str) -> Iterator[Labelled]:
    for line in read_lines(path, encoding=encoding):
        label, *text = line.text.split(maxsplit=1)[:2] if line.text.strip() else [""]
        if label:
            yield Labelled(text[0].rstrip() if text else "", label, line.where)
        else:
            examples.counts["empty lines"] += 1


def _folder(path: Path, examples: Examples[Labelled], encoding: str) -> Iterator[Labelled]:
    if not path.is_dir():
        raise UserError(f"{str(path)!r} is not a folder", fix="name the folder that holds the <label>.txt files")
    entries = sorted(entry for entry in path.iterdir() if not entry.name.startswith("."))
    if not entries:
        raise UserError(f"the folder {str(path)!r} is empty", fix="it should hold <label>.txt files")
    folders = [entry for entry in entries if entry.is_dir()]
    if folders:
        if beside := len(entries) - len(folders):
            examples.counts["files beside the folders of labels"] += beside
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
                examples.counts["empty lines"] += 1


def _with_text(examples: Examples[Labelled], kept: Examples[Labelled], empty: Empty) -> Iterator[Labelled]:
    for example in examples:
        if empty != "keep" and not example.text.strip():
            if empty == "refuse":
                raise UserError(
                    f"{example.where}: the text is empty (label {example.label!r})",
                    fix=f"correct or remove it, or skip such rows: {setting('data.empty', 'skip')} (or keep)",
                )
            kept.counts["empty texts"] += 1
        else:
            yield example
