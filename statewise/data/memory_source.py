"""Data in memory for every task: as a file in the format that the task reads, so that nothing else changes."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, assert_never

from statewise.data.file_or_data import file_names
from statewise.data.in_memory import Data
from statewise.data.memory_file import MemoryFile
from statewise.data.memory_numbers import labelled_numbers_file, series_file
from statewise.data.memory_text import labelled_file, pair_file, tagged_file, text_file, tree_file
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


def memory_file(spec: AnyRunSpec, data: Data, *, labelled: bool = True, training: bool = False) -> MemoryFile:
    """`data` as a file of the spec's task. With `labelled`, rows hold what is to be predicted too."""
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


class Given(NamedTuple):
    """Files, and the data settings of the task by which they are read."""

    paths: list[str]
    data: Any


@contextmanager
def given(spec: AnyRunSpec, data: Data, *, labelled: bool = True) -> Iterator[Given]:
    """The files that `data` names; or a temporary file that holds it."""
    paths = file_names(data)
    if paths is not None:
        yield Given(paths, spec.data)
        return
    with held(spec, data, labelled=labelled) as file:
        yield file


@contextmanager
def held(spec: AnyRunSpec, data: Data, *, labelled: bool = True) -> Iterator[Given]:
    """A temporary file of data in memory."""
    made = memory_file(spec, data, labelled=labelled)
    with tempfile.TemporaryDirectory() as folder, made.speaking_of_rows(Path(folder)) as file:
        file.write_bytes(made.content)
        yield Given([str(file)], made.data)


def source_name(data: Data) -> str:
    """For messages: the files, or that it was data in memory."""
    paths = file_names(data)
    return "the given data" if paths is None else ", ".join(paths)
