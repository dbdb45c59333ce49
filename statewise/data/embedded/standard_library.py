"""Datasets from the source of the running Python's standard library: tagging, classification, trees."""

import ast
import io
import keyword
import sysconfig
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from statewise.data.embedded.parts import Parts, by_file, parts
from statewise.data.labelled import Labelled
from statewise.data.lines import Examples, Where
from statewise.data.tagged import Tagged
from statewise.data.trees import LabelledTree, Tree
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
    """The files of modules and packages, sorted by name; those this Python lacks are skipped."""
    folder = Path(sysconfig.get_path("stdlib"))
    any_file = False
    for name in sorted(names):
        module = folder / f"{name}.py"
        for path in [module] if module.is_file() else sorted((folder / name).rglob("*.py")):
            inside = path.relative_to(folder).as_posix()
            if "/test" in inside or "__pycache__" in inside:
                continue
            any_file = True
            with tokenize.open(path) as file:
                yield SourceFile(inside, path, file.read())
    if not any_file:
        raise UserError(
            f"this Python has no source of its standard library in {str(folder)!r}",
            fix="name data files of your own",
        )


MODULES = """
    argparse bisect calendar cmd configparser copy csv difflib dis fnmatch fractions ftplib gettext gzip heapq
    json mailbox pprint queue random sched shelve shlex shutil socketserver statistics string tarfile textwrap
    threading trace urllib wave weakref
"""
_LAYOUT_NAMES = ("NL", "NEWLINE", "INDENT", "DEDENT", "COMMENT", "ENDMARKER", "ENCODING")
_LAYOUT = {getattr(tokenize, name) for name in _LAYOUT_NAMES}
_LONGEST_TOKEN, _LONGEST_LINE = 40, 60


def source_tags(*, share: float = 0.15) -> Parts[Tagged]:
    """Logical lines of source with a tag on each token; whole files are held out.

    Lines with a very long token (mostly docstrings) are counted and left out.
    """
    files = {file.name: _sentences(file) for file in library_files(MODULES.split())}
    return parts("tokens of the standard library", *by_file(files, share=share))


def _sentences(file: SourceFile) -> Examples[Tagged]:
    sentences: Examples[Tagged] = Examples()
    for line in _logical_lines(file.text):
        words = tuple(token.string for token in line)
        if any(len(word) > _LONGEST_TOKEN or not word.strip() or "\n" in word for word in words):
            sentences.counts["lines with a long token"] += 1
        elif len(words) > _LONGEST_LINE:
            sentences.counts["long lines"] += 1
        else:
            sentences.append(Tagged(words, tuple(tags_of(line)), file.where(line[0].start[0])))
    return sentences


def _logical_lines(text: str) -> Iterator[list[tokenize.TokenInfo]]:
    line: list[tokenize.TokenInfo] = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _LAYOUT:
            line.append(token)
        elif token.type == tokenize.NEWLINE and line:
            yield line
            line = []


def tags_of(line: Sequence[tokenize.TokenInfo]) -> Iterator[str]:
    """`tokenize`'s own names of the kinds; a NAME is a keyword, a definition, an attribute, a call or a name."""
    before = ""
    for token, after in zip(line, [*(token.string for token in line[1:]), ""]):
        if token.type != tokenize.NAME:
            yield tokenize.tok_name[token.type]
        elif keyword.iskeyword(token.string):
            yield "KEYWORD"
        elif before in ("def", "class"):
            yield "DEFINITION"
        elif before == ".":
            yield "METHOD" if after == "(" else "ATTRIBUTE"
        elif after == "(":
            yield "CALL"
        elif after == "=" and before in ("(", ","):
            yield "ARGUMENT"
        else:
            yield "NAME"
        before = token.string


# Packages with docstrings in several files, most of them in every build of Python.
PACKAGES = """
    asyncio concurrent ctypes email http importlib json logging multiprocessing tkinter unittest urllib wsgiref
    xml
"""
_WORDS = 4  # a shorter line tells nothing


def docstrings(*, share: float = 0.2) -> Parts[Labelled]:
    """Lines of docstrings with their package; of each package, whole files are held out.

    The same line is used once a package.
    """
    train: Examples[Labelled] = Examples()
    held: Examples[Labelled] = Examples()
    packages: dict[str, dict[str, Examples[Labelled]]] = {}
    seen: set[tuple[str, str]] = set()
    for file in library_files(PACKAGES.split()):
        package = file.name.split("/")[0]
        lines = Examples(_new(_lines(file, package), seen))
        if lines:
            packages.setdefault(package, {})[file.name] = lines
    for files in packages.values():
        if len(files) > 1:  # or there is nothing to hold out
            for part, lines_of_part in zip((train, held), by_file(files, share=share)):
                part += lines_of_part
    return parts("docstrings of the standard library", train, held)


def _lines(file: SourceFile, package: str) -> Iterator[Labelled]:
    for node in ast.walk(file.tree()):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        match node.body[:1]:
            case [ast.Expr(value=ast.Constant(value=str(text), lineno=line))]:
                for number, docstring_line in enumerate(text.split("\n"), start=line):
                    if len(docstring_line.split()) >= _WORDS:
                        yield Labelled(" ".join(docstring_line.split()), package, Where(file.name, number))


def _new(examples: Iterator[Labelled], seen: set[tuple[str, str]]) -> Iterator[Labelled]:
    for example in examples:
        if example[:2] not in seen:
            seen.add(example[:2])
            yield example


_LEAST, _MOST = 3, 40  # words of a tree


def ast_trees(*, share: float = 0.15) -> Parts[LabelledTree]:
    """Simple statements as trees labelled with the names of `ast`'s classes; whole files are held out.

    Words are names, kinds of constants, and operators. Statements of very few or very many are counted.
    """
    files = {file.name: _trees(file) for file in library_files(MODULES.split())}
    return parts(
        "syntax trees of the standard library",
        *by_file(files, share=share),
        text=lambda one: one.written_with(one.labels()),
    )


def _trees(file: SourceFile) -> Examples[LabelledTree]:
    trees: Examples[LabelledTree] = Examples()
    for node in ast.walk(file.tree()):
        if not isinstance(node, ast.stmt) or _holds_statements(node):
            continue
        tree = LabelledTree(_converted(node), file.where(node.lineno))
        size = len(tree.words())
        if _LEAST <= size <= _MOST:
            trees.append(tree)
        else:
            trees.counts["statements of few words" if size < _LEAST else "statements of many words"] += 1
    return trees


def _holds_statements(node: ast.stmt) -> bool:
    return any(isinstance(child, ast.stmt | ast.match_case) for child in ast.iter_child_nodes(node))


def _converted(node: ast.AST) -> Tree | str:
    """Depth is that of one statement of the library, so recursion is safe."""
    label = type(node).__name__
    match node:
        case ast.Constant(value=value):
            return Tree(label, [type(value).__name__])
        case ast.operator() | ast.unaryop() | ast.boolop() | ast.cmpop():
            return label  # a word of its parent: + is Add
    children = (_converted(child) for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr_context))
    inside = [*_names(node), *children]
    return Tree(label, inside or [label.lower()])


def _names(node: ast.AST) -> Iterator[str]:
    """The identifiers that stand in the node itself."""
    for _, value in ast.iter_fields(node):
        for name in value if isinstance(value, list) else [value]:
            if isinstance(name, str):
                yield name
