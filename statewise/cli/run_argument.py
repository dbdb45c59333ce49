"""The argument RUN, which most verbs take: a folder that training made."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from statewise.tasks import Run


MixerOption = Annotated[
    str | None,
    typer.Option(
        "--mixer", metavar="FILE.py", help="The file with your own mixer class (FILE.py:Class where it has several)."
    ),
]


def open_run(path: Path, mixer: str | None = None) -> "Run":
    """Open a trained folder, say what was damaged in it, and guess which was meant where there is none."""
    from statewise.specs import UserError, nearest
    from statewise.tasks import load

    known = [str(found.parent) for found in sorted([*path.glob("*/run.toml"), *Path("runs").glob("*/run.toml")])]
    if known and not any((path / name).exists() for name in ("run.toml", "checkpoints")):
        wrong = "is not a run folder" if path.is_dir() else "is not a folder"
        raise UserError(f"{str(path)!r} {wrong}", fix=nearest(str(path), dict.fromkeys(known[:10])))
    opened = load(path, mixer=mixer)
    for line in opened.skipped:
        print(f"skipped a damaged part, {line}", file=sys.stderr)
    return opened
