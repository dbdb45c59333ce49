"""The environment that README's first command makes, without a second installation.

It is a virtual environment whose packages are links to those of the environment that runs the tests: torch, and
whatever the core requirements in pyproject.toml need in turn, at the same versions. Extras and test tools are not
there, so a job that needs one of them fails here as it would for a user. To install it again with pip would take
minutes and a gigabyte in every run of the tests; links take a second. What pip resolves is what the metadata of the
packages say, which is also what `benchmarks/dependencies.py` follows.
"""

import os
import subprocess
import sys
import venv
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
WARM = Path(__file__).parents[1] / "warm.py"


def dependencies() -> Any:
    """`benchmarks/dependencies.py`, which knows what an installation consists of."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        return import_module("dependencies")
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))


def core_closure() -> dict[str, Any]:
    """Every distribution of a default installation, torch's own among them."""
    listed = dependencies()
    found: dict[str, Any] = listed.closure(listed.requirements()[0])
    missing = [name for name, one in found.items() if one is None]
    assert not missing, f"not installed here: {missing}"
    return found


def make_environment(folder: Path) -> Path:
    """Make it in an empty folder. Returns its `bin`, with `python` and `statewise`."""
    venv.create(folder, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    for one in core_closure().values():
        for name in {file.parts[0] for file in one.files or ()} - {"..", "__pycache__"}:
            if not (site / name).is_symlink():
                (site / name).symlink_to(one.locate_file(name))
    (site / "statewise.pth").write_text(f"{ROOT}\n")
    return write_commands(folder / "bin", folder / "bin/python", {"statewise": "-m statewise"})


def write_commands(folder: Path, python: Path, commands: dict[str, str]) -> Path:
    """Scripts of these names that start the interpreter with these words."""
    for name, words in commands.items():
        (folder / name).write_text(f'#!/bin/sh\nexec "{python}" {words} "$@"\n')
        (folder / name).chmod(0o755)
    return folder


def variables(*folders: Path) -> dict[str, str]:
    """The environment variables of a user who has these folders on the path."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    path = os.pathsep.join([*map(str, folders), os.environ.get("PATH", "")])
    return {**kept, "PATH": path, "COLUMNS": "100", "OMP_NUM_THREADS": "1"}


class User(NamedTuple):
    """`variables` put `python` and `statewise` on the path; `socket`: where the server listens."""

    python: Path
    variables: dict[str, str]
    socket: Path | None = None

    def run(self, *words: str | Path, folder: Path, timeout: float = 280) -> "subprocess.CompletedProcess[str]":
        """Run a command; output and errors are one text."""
        return subprocess.run(
            list(map(str, words)),
            cwd=folder,
            env=self.variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            timeout=timeout,
            check=False,
        )
