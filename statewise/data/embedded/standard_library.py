"""The source of the running Python's standard library."""

import ast
import sysconfig
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from statewise.data.lines import Where
from statewise.specs import UserError


class SourceFile(NamedTuple):
    """`name` is relative to the library, with `/` on every system."""

    name: str
    path: Path
    text: str

    def where(self, line: int) -> Where:
        return Where(self.name, line)

    def tree(self) -> ast.Module:
        return ast.parse(self.text)


def library_files(names: Sequence[str]) -> Iterator[SourceFile]:
    """The files of modules and packages, in order of name; those this Python lacks are passed over."""
    folder = Path(sysconfig.get_path("stdlib"))
    found = False
    for name in sorted(names):
        module = folder / f"{name}.py"
        for path in [module] if module.is_file() else sorted((folder / name).rglob("*.py")):
            inside = path.relative_to(folder).as_posix()
            if "/test" in inside or "__pycache__" in inside:
                continue
            found = True
            with tokenize.open(path) as file:
                yield SourceFile(inside, path, file.read())
    if not found:
        raise UserError(
            f"this Python has no source of its standard library in {str(folder)!r}",
            fix="name data files of your own",
        )
