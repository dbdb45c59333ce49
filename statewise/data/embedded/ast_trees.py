"""Trees: the syntax of standard-library source, the kind of every node to be told from the words below it."""

import ast
from collections.abc import Iterator

from statewise.data.embedded.parts import Parts, by_file, parts
from statewise.data.embedded.source_tags import MODULES
from statewise.data.embedded.standard_library import SourceFile, library_files
from statewise.data.lines import Examples
from statewise.data.trees import LabelledTree, Tree

_LEAST, _MOST = 3, 40  # words of a tree


def ast_trees(*, share: float = 0.15) -> Parts[LabelledTree]:
    """Simple statements as trees labelled with the names of `ast`'s classes; whole files are held out.

    Words are names, kinds of constants, and operators. Statements of very few or very many are counted.
    """
    files = {file.name: _trees(file) for file in library_files(MODULES)}
    return parts(
        "syntax trees of the standard library",
        *by_file(files, share=share),
        text=lambda one: one.written_with(one.labels()),
    )


def _trees(file: SourceFile) -> Examples[LabelledTree]:
    found: Examples[LabelledTree] = Examples()
    for node in ast.walk(file.tree()):
        if not isinstance(node, ast.stmt) or _holds_statements(node):
            continue
        tree = LabelledTree(_converted(node), file.where(node.lineno))
        size = len(tree.words())
        if _LEAST <= size <= _MOST:
            found.append(tree)
        else:
            found.counts["statements of few words" if size < _LEAST else "statements of many words"] += 1
    return found


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
    children = (_converted(child) for child in ast.iter_child_nodes(node) if not _is_context(child))
    inside = [*_names(node), *children]
    return Tree(label, inside or [label.lower()])


def _names(node: ast.AST) -> Iterator[str]:
    """The identifiers that stand in the node itself."""
    for _, value in ast.iter_fields(node):
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, str):
                yield one


def _is_context(node: ast.AST) -> bool:
    """Whether a name is read or written: known from where it stands."""
    return isinstance(node, ast.expr_context)
