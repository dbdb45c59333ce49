"""Names of the package itself: there without being imported first, described, all on the page that lists them."""

import ast
import re
import subprocess
import sys

import pytest
from package_source import ROOT

import statewise


@pytest.mark.parametrize("name", statewise.__all__)
def test_a_public_name_is_described(name: str) -> None:
    found = getattr(statewise, name)
    assert name in dir(statewise)
    assert (found.__doc__ or "").strip()


def test_the_page_lists_exactly_them() -> None:
    page = (ROOT / "docs/python.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `sw.")]
    assert sorted(re.findall(r"`sw\.(\w+)`", " ".join(rows))) == sorted(statewise.__all__)


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse((ROOT / "statewise/__init__.py").read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {(one.names[0].asname, one.module) for one in block.body if isinstance(one, ast.ImportFrom)}
    assert seen == {(name, f"statewise.{module}") for name, module in statewise._MODULE_OF.items()}


def test_importing_the_package_imports_nothing_heavy() -> None:
    heavy = ("torch", "numpy", "pydantic", "typer")
    code = f"import sys, statewise; sys.exit(', '.join(m for m in {heavy!r} if m in sys.modules) or 0)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
