"""The files at a path: one, or those of a folder in path order."""

import os
from collections.abc import Sequence
from pathlib import Path

from statewise.specs import UserError, nearest

STDIN = "-"
EXAMPLES = "examples.json"  # the index of a folder of examples


def holds_examples(path: str | Path) -> bool:
    return os.path.isfile(os.path.join(path, EXAMPLES))  # no error, whatever the name


def names_examples(paths: Sequence[str]) -> bool:
    """Whether data are named that are a folder of examples, and nothing else."""
    if not any(map(holds_examples, paths)):
        return False
    if len(paths) > 1:
        raise UserError(
            f"{', '.join(paths)!r}: a folder of examples is trained on alone",
            fix="build one folder of all of these: statewise data build",
        )
    return True


def refuse_examples(paths: Sequence[str]) -> None:
    for path in paths:
        if holds_examples(path):
            raise UserError(
                f"{path!r} holds examples to train on, and a file is read here", fix="name what it was made of"
            )


def files_at(path: Path) -> list[Path]:
    """The file, or the files of the folder; a missing name is refused with the most similar one."""
    refuse_examples([str(path)])
    try:
        if path.is_dir():
            return _files_below(path)
        if path.is_file():
            return [path]
        if path.exists():
            raise UserError(
                f"{str(path)!r} is neither a file nor a folder, and text is read twice",
                fix="pipe it in as standard input: name it '-'",
            )
        if path.is_symlink():
            raise UserError(f"{str(path)!r} is a link to nothing", fix="name a file that exists")
        if str(path).startswith("hub:"):
            raise UserError(
                f"{str(path)!r} names a dataset of rows, and a file is read here",
                fix="save it as a file first, as in Dataset.to_parquet('texts.parquet'), and name that",
            )
        beside = [entry.name for entry in path.parent.iterdir() if not entry.name.startswith(".")]
    except UserError:
        raise
    except (OSError, ValueError) as error:
        # The parent is absent or unreadable, or the name is too long or contains \0.
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"{str(path)!r} cannot be read: {reason}", fix="check the path") from None
    hint = nearest(path.name, beside) if 0 < len(beside) <= 20 else _closest(path.name, beside)
    raise UserError(f"{str(path)!r} does not exist", fix=f"in {str(path.parent)!r}: {hint}")


def _closest(name: str, beside: Sequence[str]) -> str:
    """Only the close match: a list of a large folder would fill the screen."""
    guess, valid, _ = nearest(name, beside).partition("valid: ")
    return guess.strip() if guess and valid else f"{len(beside)} other names, none of them close"


def _files_below(folder: Path) -> list[Path]:
    """Regular files by relative path, without hidden ones and links out of the folder."""
    inside = folder.resolve()
    regular: list[Path] = []
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        files = [Path(parent, name) for name in names if not name.startswith(".")]
        regular += [file for file in files if file.is_file() and file.resolve().is_relative_to(inside)]
    return sorted(regular, key=lambda file: file.relative_to(folder).as_posix())
