"""What a view shows under "How it is computed" is true: the Python code runs."""

import contextlib
import io
import json
import subprocess

import pytest
from lab_views import VIEWS
from node import HERE, node

PRINT = """import { VIEWS } from "./statewise/lab/static/views.js";
console.log(JSON.stringify(Object.fromEntries(VIEWS.map((view) => [view.id, view.how]))));"""


@pytest.fixture(scope="module")
def explained() -> dict[str, dict[str, str]]:
    done = subprocess.run(
        [node(), "--input-type=module", "--eval", PRINT],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=HERE.parents[1],
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, str]] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("view", VIEWS)
def test_the_code_runs(view: str, explained: dict[str, dict[str, str]]) -> None:
    how = explained[view]
    assert set(how) == {"equation", "code", "command"}
    assert how["command"].startswith("statewise ")
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(how["code"], f"{view}.py", "exec"), {})
