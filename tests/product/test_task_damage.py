"""A run folder of any task, damaged: every file that its manifest vouches for is missed, and named."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from command import call
from covering import covered
from task_runs import RUNS, make_run

from statewise.training.checkpoint import MANIFEST


def change(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1] + b"#")


def empty(path: Path) -> None:
    path.write_text("{}")


DAMAGES: dict[str, Callable[[Path], object]] = {"changed": change, "emptied": empty, "gone": Path.unlink}


@covered("name, damage", list(RUNS), list(DAMAGES), strength=1)
def test_a_damaged_folder_is_refused(name: str, damage: str, tasks: Path, tmp_path: Path) -> None:
    whole = make_run(name, tasks)
    files = json.loads((whole / MANIFEST).read_text())["files"]
    assert len(files) >= 3
    for file in files:
        run = tmp_path / file
        shutil.copytree(whole, run)
        for path in run.rglob(file):  # in the checkpoints too: there is nothing to fall back to
            DAMAGES[damage](path)
        said = call("evaluate", str(run))
        assert said.code == 2, file
        assert said.out == ""
        assert file in said.err
        assert "Traceback" not in said.err
