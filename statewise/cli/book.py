"""`statewise book check`: the exercises of the book."""

import subprocess
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from statewise.cli.option import Json

_PACKAGE = Path(__file__).parents[1]


def book(
    action: Annotated[Literal["check"], typer.Argument(metavar="check", help="Run the tests of an exercise.")],
    exercise: Annotated[
        str | None, typer.Argument(metavar="EXERCISE", help="For example 4.2. Default: all that the file answers.")
    ] = None,
    answers: Annotated[
        Path, typer.Option("--answers", metavar="FILE", help="The Python file with your functions; it is executed.")
    ] = Path("answers.py"),
    json_: Json = False,
) -> int:
    """Check your answers to the exercises of the book.

    Exit code 1: an answer is wrong.

    Example: statewise book check 1.1
    Example: statewise book check --answers chapter1.py
    """
    given = [*(["--json"] if json_ else []), *([] if exercise is None else [exercise])]
    return subprocess.call([sys.executable, str(_folder() / "check.py"), *given, str(answers)])


def _folder() -> Path:
    """The exercises: inside an installed package, in the book of a checkout."""
    installed = _PACKAGE / "exercises"
    return installed if installed.is_dir() else _PACKAGE.parent / "book" / "exercises"
