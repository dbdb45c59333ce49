"""What a caller gives as data: names of files, or objects in memory, which become a file in the format of the task."""

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, assert_never

from statewise.data.file import STDIN, files_at
from statewise.data.memory_numbers import labelled_numbers_file, series_file
from statewise.data.memory_object import Data, MemoryFile, library_type
from statewise.data.memory_text import labelled_file, pair_file, tagged_file, text_file, tree_file
from statewise.disk import LOCK, write
from statewise.specs import (
    AnyRunSpec,
    ClassificationSpec,
    ForecastingSpec,
    LanguageModelSpec,
    TaggingSpec,
    TranslationSpec,
    TreeSpec,
    UserError,
)

_LONGEST_NAME, _LONGEST_PATH = 255, 4096  # of a file, on every common file system
_ENDING = re.compile(r".*\.[A-Za-z][A-Za-z0-9]{0,7}")
_BARE_WORD = re.compile(r"[\w.~+@=-]+", re.ASCII)
_EXPLICIT = 'for a file give Path("..."), for texts {"text": ["..."]}'


def file_names(data: Data) -> list[str] | None:
    """The names, if `data` names files; None if it is the data itself.

    A `Path` is a file. A string is one if such a file exists or if it looks like a path: an ending or a slash, and no
    white space. Any other string is text, except a single word, which could be either and is refused. A list of
    strings is texts, unless all of them look like paths.
    """
    if isinstance(data, str):
        return [data] if _is_file(data) else None
    if isinstance(data, os.PathLike):
        return [str(os.fspath(data))]
    if not isinstance(data, list | tuple) or library_type(data) or not data:  # NLTK's trees are lists
        return None
    if not all(isinstance(item, str | os.PathLike) for item in data):
        return None
    if any(isinstance(item, os.PathLike) for item in data):
        return [str(os.fspath(item)) for item in data]
    if all(map(_looks_like_path, data)):
        for name in data:
            _refuse_absent(name)
        return list(data)
    if all(map(_exists, data)):
        raise UserError(
            f"{data[0]!r} is the name of a file here, and it could also be a text",
            fix='give [Path("...")] for files, {"text": ["..."]} for texts',
        )
    return None


def _is_file(text: str) -> bool:
    if not text.strip():
        raise UserError("the data is an empty string", fix="give a text, or the name of a file")
    if _exists(text) or _looks_like_path(text):
        _refuse_absent(text)
        return True
    if len(text) <= _LONGEST_NAME and _BARE_WORD.fullmatch(text):
        raise UserError(
            f"{text!r} could be a text, or the name of a file that does not exist",
            fix=f'give ["{text}"] for a text, Path("{text}") for a file',
        )
    return False


def _exists(name: str) -> bool:
    return len(name) <= _LONGEST_PATH and os.path.exists(name)


def _is_other_source(name: str) -> bool:
    """Standard input, a dataset of the hub, arrays of an archive."""
    return name == STDIN or re.match(r"hub:\S", name) is not None or re.fullmatch(r"\S+\.npz:\S+", name) is not None


def _looks_like_path(text: str) -> bool:
    """Where there is white space, only the name of a file that exists does."""
    if _is_other_source(text):
        return True
    if len(text) > _LONGEST_PATH or (re.search(r"\s", text) and not _exists(text)):
        return False
    return "/" in text or os.sep in text or _ENDING.fullmatch(text) is not None


def _refuse_absent(name: str) -> None:
    if _exists(name) or _is_other_source(name):
        return
    try:
        files_at(Path(name))
    except UserError as error:
        raise UserError(error.what, fix=f"{error.fix}; {_EXPLICIT}") from None


def memory_file(spec: AnyRunSpec, data: Data, *, labelled: bool = True, training: bool = False) -> MemoryFile:
    """`data` as a file of the spec's task. With `labelled`, rows include the targets."""
    if isinstance(data, list | tuple) and not data:
        raise UserError("the data is an empty list", fix="give at least one row")
    match spec:
        case LanguageModelSpec():
            return text_file(spec.data, data, training=training)
        case ClassificationSpec():
            numbers = labelled_numbers_file(spec.data, data, labelled=labelled, training=training)
            return numbers or labelled_file(spec.data, data, labelled=labelled, training=training)
        case TranslationSpec():
            return pair_file(spec.data, data, labelled=labelled, training=training)
        case TaggingSpec():
            return tagged_file(spec.data, data, labelled=labelled, training=training)
        case TreeSpec():
            return tree_file(spec.data, data, training=training)
        case ForecastingSpec():
            return series_file(spec.data, data)
        case _:
            assert_never(spec)


class DataFiles(NamedTuple):
    """Files, and the data settings of the task to read them with."""

    paths: list[str]
    data: Any


@contextmanager
def as_files(spec: AnyRunSpec, data: Data) -> Iterator[DataFiles]:
    """The files that `data` names, or a temporary file with the data itself."""
    paths = file_names(data)
    if paths is not None:
        yield DataFiles(paths, spec.data)
        return
    with as_temporary_file(spec, data) as file:
        yield file


@contextmanager
def as_temporary_file(spec: AnyRunSpec, data: Data, *, labelled: bool = True) -> Iterator[DataFiles]:
    """A temporary file of data in memory."""
    made = memory_file(spec, data, labelled=labelled)
    with tempfile.TemporaryDirectory() as folder, made.errors_by_row(Path(folder)) as file:
        file.write_bytes(made.content)
        yield DataFiles([str(file)], made.data)


@contextmanager
def stored_in(made: MemoryFile | None, folder: Path, *, leads: bool) -> Iterator[None]:
    """Write the file into a run's folder. If the run fails before anything else is there, remove it again."""
    if made is None:
        yield
        return
    with made.errors_by_row(folder) as file:
        try:
            if leads:
                folder.mkdir(parents=True, exist_ok=True)
                write(file, made.content)
            yield
        except BaseException:
            if leads and folder.is_dir() and {path.name for path in folder.iterdir()} - {LOCK} == {made.name}:
                file.unlink()
                with suppress(OSError):  # locked by another process, which decides whether it stays
                    folder.rmdir()
            raise


def source_name(data: Data) -> str:
    """For messages: the files, or that it was data in memory."""
    paths = file_names(data)
    return "the given data" if paths is None else ", ".join(paths)
