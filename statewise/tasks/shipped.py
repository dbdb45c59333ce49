"""Trained runs that come with the package, opened by name: `sw.load("shakespeare-lstm")`.

They are run folders like any other, checked byte by byte. The text they learned from does not come with them.
"""

from pathlib import Path

_FOLDER = Path(__file__).parents[1] / "trained"


def shipped_names() -> list[str]:
    return sorted(path.parent.name for path in _FOLDER.glob("*/run.toml"))


def find_run(run: str | Path) -> Path:
    """The folder of a run: `run` itself, or the shipped run of that name where no run is there."""
    path = Path(run)
    here = any((path / name).exists() for name in ("run.toml", "checkpoints"))
    return _FOLDER / path.name if not here and str(run) in shipped_names() else path


def is_shipped(folder: Path) -> bool:
    return folder.parent == _FOLDER
