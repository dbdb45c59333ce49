"""Optional libraries: imported when a job needs them, or refused with the command that installs them."""

import json
import shutil
import sys
from importlib import import_module, metadata
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from statewise.specs.error import UserError


def optional(module: str, *, extra: str, needed_by: str) -> Any:
    """A module of a library that the extra `extra` installs; refused if the library is missing.

    >>> optional("json.decoder", extra="plots", needed_by="PNG files").__name__
    'json.decoder'
    """
    library = module.split(".")[0]
    try:
        return import_module(module)
    except ModuleNotFoundError as missing:
        if (missing.name or "").split(".")[0] != library:
            raise  # it is installed, but something that it needs is not
        raise UserError(
            f"{needed_by} need the library {library}, which is not installed", fix=install_command(extra)
        ) from None


def install_command(extra: str) -> str:
    """The command that adds an extra to this installation, from a checkout or from an index."""
    pip = shutil.which("pip")
    ours = pip is not None and Path(pip).parent == Path(sys.executable).parent
    return f"{'pip' if ours else f'{sys.executable} -m pip'} install {_requirement(extra)}"


def _requirement(extra: str) -> str:
    root = Path(__file__).parents[2]
    if (root / "pyproject.toml").is_file():  # a checkout: installed with -e, or on PYTHONPATH
        return f"-e '{'.' if root == Path.cwd() else root}[{extra}]'"
    try:
        origin = json.loads(metadata.distribution("statewise").read_text("direct_url.json") or "{}")
    except (metadata.PackageNotFoundError, ValueError):
        origin = {}
    url = urlparse(origin.get("url", ""))
    if url.scheme == "file" and "dir_info" in origin:  # installed from a checkout, without -e
        return f"'{unquote(url.path)}[{extra}]'"
    return f"'statewise[{extra}]'"
