"""`statewise book check`: the exercises of the book."""

import subprocess
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from statewise.cli.option import Json


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
    from statewise.specs import shipped_folder

    given = [*(["--json"] if json_ else []), *([] if exercise is None else [exercise])]
    check = shipped_folder("exercises", in_checkout="book/exercises") / "check.py"
    return subprocess.call([sys.executable, str(check), *given, str(answers)])
