"""The argument RUN, which most verbs take: a folder that training made."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from statewise.cli.output import tell

if TYPE_CHECKING:
    from statewise.tasks import Run


MixerOption = Annotated[
    str | None,
    typer.Option(
        "--mixer", metavar="FILE.py", help="The file with your own mixer class (FILE.py:Class where it has several)."
    ),
]


def open_run(path: Path, settings: Sequence[str] = (), *, device: str | None = None, mixer: str | None = None) -> "Run":
    """Open a run folder with other settings, report damaged parts, and suggest a folder where there is none."""
    from statewise.specs import UserError, nearest
    from statewise.tasks import find_run, load, shipped_names

    path = find_run(path)
    known = [str(found.parent) for found in sorted([*path.glob("*/run.toml"), *Path("runs").glob("*/run.toml")])]
    known = [*known[:10], *shipped_names()]
    if not any((path / name).exists() for name in ("run.toml", "checkpoints")):
        wrong = "is not a run folder" if path.is_dir() else "is not a folder"
        raise UserError(f"{str(path)!r} {wrong}", fix=nearest(str(path), dict.fromkeys(known)))
    opened = load(path, device=device or "auto", mixer=mixer)
    for line in opened.skipped:
        tell(f"skipped a damaged part, {line}", error=True)
    if not settings:
        return opened
    return opened.with_settings(settings)
