"""Names of the package itself: there without being imported first, described, all on the page that lists them."""

import ast
import inspect
import re
import subprocess
import sys

import pytest
from package_source import ROOT

import statewise
from statewise.specs.parse import TASKS as SPECS
from statewise.tasks import TASKS


@pytest.mark.parametrize("name", statewise.__all__)
def test_a_public_name_is_described(name: str) -> None:
    found = getattr(statewise, name)
    assert name in dir(statewise)
    assert (found.__doc__ or "").strip()


def test_the_page_lists_exactly_them() -> None:
    page = (ROOT / "docs/python.md").read_text(encoding="utf-8")
    table = page[: page.index("```")]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `sw.")]
    assert sorted(re.findall(r"`sw\.(\w+)`", " ".join(rows))) == sorted(statewise.__all__)


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse((ROOT / "statewise/__init__.py").read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {(one.names[0].asname, one.module) for one in block.body if isinstance(one, ast.ImportFrom)}
    packages = {(name, "statewise") for name in statewise._PACKAGES}
    assert seen == packages | {(name, f"statewise.{module}") for name, module in statewise._MODULE_OF.items()}


def test_nothing_but_public_names_is_listed() -> None:
    assert dir(statewise) == sorted([*statewise.__all__, *statewise._PACKAGES, "__version__"])
    assert not [name for name in dir(statewise) if name.startswith("_") and name != "__version__"]


def test_packages_are_there_without_an_import_of_their_own() -> None:
    """In a new process, where nothing else has imported them."""
    names = [f"sw.{name}" for name in statewise._PACKAGES]
    code = f"import statewise as sw; print([one.__name__ for one in ({', '.join(names)})]); sw.mixers.Mamba2(8)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str([f"statewise.{name}" for name in statewise._PACKAGES])
    folders = {path.parent.name for path in (ROOT / "statewise").glob("*/__init__.py")}
    assert folders - set(statewise._PACKAGES) == {"cli", "comparison", "disk", "display", "figures"}, (
        "a new package is public, or named here"
    )


def test_the_page_names_the_packages() -> None:
    page = (ROOT / "docs/python.md").read_text(encoding="utf-8")
    assert [name for name in statewise._PACKAGES if f"`sw.{name}`" not in page] == []


def test_signatures_are_readable() -> None:
    """What `help` prints: no union of all specs."""
    for name in statewise.__all__:
        found = getattr(statewise, name)
        if callable(found) and not isinstance(found, type):
            shown = str(inspect.signature(found))
            assert shown.count("Spec") <= 1, f"{name}{shown}"
    parameters = inspect.signature(statewise.build).parameters
    assert {"width", "depth", "heads", "dropout", "tie"} <= parameters.keys()


RUNS = {name: task.run for name, task in TASKS.items()}
ONLY: dict[str, set[str]] = {
    "predict": RUNS.keys() - {"language_model"},
    "predict_rows": RUNS.keys() - {"language_model"},
    "predict_lines": RUNS.keys() - {"language_model"},
    "exposure_gap": {"language_model", "translation", "forecasting"},
    "translate": {"translation"},
    "stream": {"language_model"},
    **{name: {"forecasting"} for name in ("backtest", "forecast", "interpolate", "plot")},
    "stationarity": {"forecasting", "language_model"},
}


@pytest.mark.parametrize("name", ONLY)
def test_a_run_has_the_methods_of_its_task_alone(name: str) -> None:
    assert {task for task, kind in RUNS.items() if hasattr(kind, name)} == ONLY[name]


def test_every_spec_has_its_task() -> None:
    assert set(TASKS) == set(SPECS)


def test_importing_the_package_imports_nothing_heavy() -> None:
    heavy = ("torch", "numpy", "pydantic", "typer")
    code = f"import sys, statewise; sys.exit(', '.join(m for m in {heavy!r} if m in sys.modules) or 0)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
