"""The package's source as syntax trees: what the architecture tests read."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import statewise

PACKAGE = Path(statewise.__file__).parent
ROOT = PACKAGE.parent


@cache
def modules() -> dict[str, ast.Module]:
    """Every module of the package by its dotted name; a folder's `__init__` is named as the folder."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 2 else parts)
        found[name] = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    return found


def imports(tree: ast.Module, *, within: str) -> Iterator[tuple[int, str]]:
    """Line and dotted name of all that is imported, at the top or inside a function, relative ones resolved."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = within.split(".")[: -node.level] or ["statewise"]
                base = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                yield node.lineno, f"{base}.{alias.name}"
