"""Arguments and options that several verbs share, and opening the run that they name."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from statewise.cli.output import tell

if TYPE_CHECKING:
    from statewise.tasks import Run


def option(call: str, help: str, **more: Any) -> Any:
    """An option: `option("--out -o DIR", "Folder of the run.")` has two names, and DIR stands for its value."""
    names = [word for word in call.split() if word.startswith("-")]
    value = " ".join(word for word in call.split() if not word.startswith("-"))
    return typer.Option(*names, metavar=value or None, help=help, **more)


RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="A trained folder.")]
Device = Annotated[str | None, option("--device DEVICE", "cpu, cuda, cuda:1. Default: a GPU if there is one.")]
DecodingSettings = Annotated[
    list[str] | None, option("--set -s PATH=VALUE", "A setting of decoding, e.g. decoding.beam=10.")
]
MixerOption = Annotated[
    str | None, option("--mixer FILE.py", "The file with your own mixer class (FILE.py:Class where it has several).")
]
# The old name of --data: still accepted, not shown.
Text = Annotated[list[str] | None, typer.Option("--text", "-t", hidden=True)]
Json = Annotated[bool, option("--json", "Print the result as JSON.")]
Quiet = Annotated[bool, option("--quiet -q", "No progress.")]


def joined(data: list[str] | None, text: list[str] | None) -> list[str] | None:
    """The files of --data and --text together."""
    return [*(data or []), *(text or [])] or None


def open_run(path: Path, settings: Sequence[str] = (), *, device: str | None = None, mixer: str | None = None) -> "Run":
    """Open a run folder with other settings, report damaged parts, and suggest a folder where there is none."""
    from statewise.specs import UserError, nearest
    from statewise.tasks import find_run, is_run, load, shipped_names

    path = find_run(path)
    known = [str(file.parent) for file in sorted([*path.glob("*/run.toml"), *Path("runs").glob("*/run.toml")])]
    known = [*known[:10], *shipped_names()]
    if not is_run(path):
        wrong = "is not a run folder" if path.is_dir() else "is not a folder"
        foreign = f"if it is Hugging Face's: statewise import {path}; " if (path / "config.json").is_file() else ""
        raise UserError(f"{str(path)!r} {wrong}", fix=foreign + nearest(str(path), dict.fromkeys(known)))
    opened = load(path, device=device or "auto", mixer=mixer)
    for line in opened.skipped:
        tell(f"skipped a damaged part, {line}", error=True)
    if not settings:
        return opened
    return opened.with_settings(settings)
