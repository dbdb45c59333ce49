"""Options that several verbs have."""

from typing import Annotated

import typer

Device = Annotated[
    str | None, typer.Option("--device", metavar="DEVICE", help="cpu, cuda, cuda:1. Default: a GPU if there is one.")
]
# The name that --data had; still read, no longer shown.
Text = Annotated[list[str] | None, typer.Option("--text", "-t", hidden=True)]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]


def joined(data: list[str] | None, text: list[str] | None) -> list[str] | None:
    """What --data and --text name together."""
    return [*(data or []), *(text or [])] or None
