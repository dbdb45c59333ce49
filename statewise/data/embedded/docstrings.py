"""Classification: from which package of the standard library is this line of a docstring?"""

import ast
from collections.abc import Iterator

from statewise.data.embedded.parts import Parts, by_file, parts
from statewise.data.embedded.standard_library import SourceFile, library_files
from statewise.data.labelled import Labelled
from statewise.data.lines import Examples, Where

# Packages with docstrings in several files, most of them in every build of Python.
PACKAGES = (
    "asyncio",
    "concurrent",
    "ctypes",
    "email",
    "http",
    "importlib",
    "json",
    "logging",
    "multiprocessing",
    "tkinter",
    "unittest",
    "urllib",
    "wsgiref",
    "xml",
)
_WORDS = 4  # a shorter line tells nothing


def docstrings(*, share: float = 0.2) -> Parts[Labelled]:
    """Lines of docstrings with their package; of each package, whole files are held out.

    The same line is used once a package.
    """
    train: Examples[Labelled] = Examples()
    held: Examples[Labelled] = Examples()
    packages: dict[str, dict[str, Examples[Labelled]]] = {}
    seen: set[tuple[str, str]] = set()
    for file in library_files(PACKAGES):
        package = file.name.split("/")[0]
        lines = Examples(_new(_lines(file, package), seen))
        if lines:
            packages.setdefault(package, {})[file.name] = lines
    for files in packages.values():
        if len(files) > 1:  # or there is nothing to hold out
            for chosen, found in zip((train, held), by_file(files, share=share)):
                chosen += found
    return parts("docstrings of the standard library", train, held)


def _lines(file: SourceFile, package: str) -> Iterator[Labelled]:
    for node in ast.walk(file.tree()):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        match node.body[:1]:
            case [ast.Expr(value=ast.Constant(value=str(text), lineno=line))]:
                for number, one in enumerate(text.split("\n"), start=line):
                    if len(one.split()) >= _WORDS:
                        yield Labelled(" ".join(one.split()), package, Where(file.name, number))


def _new(examples: Iterator[Labelled], seen: set[tuple[str, str]]) -> Iterator[Labelled]:
    for example in examples:
        if example[:2] not in seen:
            seen.add(example[:2])
            yield example
