"""Is a string the name of a file, or is it the data itself?"""

import os
import re
from pathlib import Path

from statewise.data.in_memory import Data, library_type
from statewise.data.source import STDIN, found_at
from statewise.specs import UserError

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
    if not all(isinstance(one, str | os.PathLike) for one in data):
        return None
    if any(isinstance(one, os.PathLike) for one in data):
        return [str(os.fspath(one)) for one in data]
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
        found_at(Path(name))
    except UserError as error:
        raise UserError(error.what, fix=f"{error.fix}; {_EXPLICIT}") from None
