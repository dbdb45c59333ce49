"""Where a run was trained: versions, machine, data and command, and what of that a resumed run must find again."""

import json
import os
import platform
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

import statewise
from statewise.disk import write
from statewise.specs import AnyRunSpec, UserError, from_json, option, read_small, setting
from statewise.training import Checkpoint, Display, Parallel


def write_environment(path: Path, facts_of_data: Mapping[str, Any], par: Parallel) -> None:
    facts = {
        "statewise": statewise.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "platform": platform.platform(),
        "device": torch.cuda.get_device_name(par.device) if par.device.type == "cuda" else platform.machine(),
        "threads": torch.get_num_threads(),
        "processes": par.world,
        "folder": str(path.absolute()),
        **facts_of_data,
        "command": ["statewise", *sys.argv[1:]],
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    write(path / "environment.json", json.dumps(facts, indent=1) + "\n")


def _read(path: Path) -> dict[str, Any]:
    try:
        facts = from_json(read_small(path / "environment.json"))
    except (FileNotFoundError, ValueError):
        return {}
    return facts if isinstance(facts, dict) else {}


def found_again(spec: AnyRunSpec, home: Path) -> AnyRunSpec:
    """A project may have been moved with its data: files that are gone are looked for where they were, seen from the
    run's folder.
    """
    before: Any = None

    def here(name: str) -> str:
        nonlocal before
        if not Path(name).is_absolute() or Path(name).exists():
            return name
        before = before or _read(home).get("folder") or str(home.absolute())
        moved = os.path.normpath(home.absolute() / os.path.relpath(name, str(before)))
        return moved if Path(moved).exists() else name

    return spec.with_files(here)


def data_sha256(path: Path) -> str | None:
    """Of the data that the run in this folder learned from, if it is known."""
    return _sha256(_read(path))


def _sha256(facts: Mapping[str, Any]) -> str | None:
    for name in ("corpus", "data"):
        told = facts.get(name)
        if isinstance(told, dict) and isinstance(told.get("sha256"), str):
            return str(told["sha256"])
    return None


def refuse_other_data(path: Path, facts_of_data: Mapping[str, Any]) -> None:
    """What a resumed run is given must be what it began with, wherever it lies now."""
    before, now = data_sha256(path), _sha256(facts_of_data)
    if before is not None and before != now:
        raise UserError(
            f"the data is not that which {str(path)!r} began with (sha256 {str(now)[:12]}, expected {before[:12]})",
            fix="name the same data, or train again",
        )


def compare_threads(checkpoint: Checkpoint, spec: AnyRunSpec, device: torch.device, display: Display) -> None:
    """On a CPU, sums are rounded in an order that depends on the number of threads."""
    before, now = checkpoint.progress.get("threads"), torch.get_num_threads()
    if before is None or before == now or device.type != "cpu":
        return
    if spec.train.deterministic:
        raise UserError(
            f"this deterministic run was trained on {before} threads, and here are {now}: its weights would not repeat",
            fix=f"set OMP_NUM_THREADS={before}, or {setting('train.deterministic', False)}",
        )
    display.say(f"trained on {before} threads, now on {now}: weights differ by rounding from those of an uncut run")


def restarted(out: str | Path | None) -> bool:
    """Whether torchrun has lost a process of this run and started all of them again, by the same command."""
    if os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0") != "0" and out is None:
        raise UserError(
            "a run that torchrun may restart needs to know its folder, to continue there",
            fix=f"name it: {option('out', 'DIR')}",
        )
    return os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0" and Path(str(out)).is_dir()
