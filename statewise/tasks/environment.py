"""Where a run was trained: versions, machine, data and command, for people to read."""

import json
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
from statewise.training import Parallel


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
        **facts_of_data,
        "command": ["statewise", *sys.argv[1:]],
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    write(path / "environment.json", json.dumps(facts, indent=1) + "\n")
