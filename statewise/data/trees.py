"""Trees in brackets with a label at every node: sentiment (SST) and Penn style.

N nodes of all trees together, B trees.
"""

import gc
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from statewise.data.flat_tree import FlatTree, parse_flat
from statewise.data.hub import hub_name, hub_rows
from statewise.data.lines import UTF8, Examples, Line, Paths, Where, path_list, read_lines, refuse_empty
from statewise.specs import UserError

NO_LABEL = -100  # ignored by `torch.nn.functional.cross_entropy`
NO_WORD = -1

_COLUMN = "tree"  # of a dataset
_BRACKET = re.compile(r"[()]")
_CLOSE = ")"  # no word is a bracket, so this cannot be one


class Tree(list["Tree | str"]):
    """A label, and children that are trees or words; interchangeable with `nltk.Tree`.

    >>> tree = Tree("NP", [Tree("D", ["the"]), Tree("N", ["cat"])])
    >>> tree.label(), tree[1][0]
    ('NP', 'cat')
    """

    def __init__(self, label: str, children: Iterable["Tree | str"]) -> None:
        super().__init__(children)
        self._label = label

    def label(self) -> str:
        return self._label

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tree) and self._label == other._label and super().__eq__(other)

    def __ne__(self, other: object) -> bool:  # `list` defines one
        return not self == other

    def __repr__(self) -> str:
        return f"Tree({self._label!r}, {super().__repr__()})"


class LabelledTree(NamedTuple):
    """`tree` is a `Tree`, an `nltk.Tree` or, for training, a `FlatTree`; `where` is the line it starts on."""

    tree: Any
    where: Where

    def words(self) -> list[str]:
        """From left to right."""
        return [node.word for node in nodes_of(self.tree) if node.word is not None]

    def labels(self) -> list[str]:
        """Of the nodes that have one, in the order of `nodes_of`."""
        return [node.label for node in nodes_of(self.tree) if node.label is not None]

    def written_with(self, labels: Sequence[str]) -> str:
        """On one line, with these labels in place of its own, in the order of `labels()`."""
        left, parts = iter(labels), []
        waiting: list[Any] = [self.tree]
        while waiting:
            node = waiting.pop()
            if isinstance(node, str):
                parts.append(node)
            else:
                parts.append(f"({next(left)}")
                waiting += [_CLOSE, *reversed(node)]
        assert next(left, None) is None
        return "".join(part if part == _CLOSE or not number else f" {part}" for number, part in enumerate(parts))


class Node(NamedTuple):
    parent: int
    label: str | None
    word: str | None


def read_trees(paths: Paths, *, encoding: str = UTF8) -> Examples[LabelledTree]:
    """All trees of all files; a tree may span lines, and a line may hold several."""
    return _read_all(paths, encoding, parse_tree)


def read_flat_trees(paths: Paths, *, encoding: str = UTF8) -> Examples[LabelledTree]:
    """The same, each as a `FlatTree`: in a fifth of the time and memory."""
    return _read_all(paths, encoding, parse_flat)


def _read_all(paths: Paths, encoding: str, parse: Callable[[str, Where], Tree | FlatTree]) -> Examples[LabelledTree]:
    counts: Counter[str] = Counter()
    with gc_disabled():
        texts = tree_texts(paths, counts, encoding=encoding)
        return Examples((LabelledTree(parse(text, where), where) for text, where in texts), counts)


def tree_texts(paths: Paths, counts: Counter[str], *, encoding: str = UTF8) -> Iterator[tuple[str, Where]]:
    """The text of each tree of all files, one at a time, and where it starts."""
    kept = 0
    for path in path_list(paths):
        for text, where in bracketed(_lines(path, encoding)):
            if text is None:
                counts["empty lines"] += 1
            else:
                kept += 1
                yield text, where
    refuse_empty(kept, paths, "tree")


@contextmanager
def gc_disabled() -> Iterator[None]:
    """Pause the garbage collector: trees have no cycles, and searching millions of lists doubles the time."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


def read_trees_and_gaps(paths: Paths, *, encoding: str = UTF8) -> Iterator[LabelledTree | Where]:
    """The trees of `read_trees` as an iterator; for an empty line, its place."""
    for path in path_list(paths):
        for text, where in bracketed(_lines(path, encoding)):
            yield where if text is None else LabelledTree(parse_tree(text, where), where)


def nodes_of(tree: Any) -> Iterator[Node]:
    """Parents first, left to right; iterative, since trees may be deep."""
    waiting = [(tree, -1)]
    number = 0
    while waiting:
        node, parent = waiting.pop()
        if isinstance(node, str):
            yield Node(parent, None, node)
        elif len(node) == 1 and isinstance(node[0], str):
            yield Node(parent, str(node.label()), node[0])
        else:
            yield Node(parent, str(node.label()), None)
            waiting += [(child, number) for child in reversed(node)]
        number += 1


def bracketed(lines: Iterable[Line]) -> Iterator[tuple[str | None, Where]]:
    """The text of each tree and the place where it starts; None for an empty line outside any tree."""
    depth, begin = 0, Where("", 1)
    parts: list[str] = []
    for line in lines:
        if not line.text.strip():
            if depth == 0:
                yield None, line.where
            continue
        if depth == 0 and _one_tree(line.text):
            yield line.text, line.where
            continue
        done = 0
        for bracket in _BRACKET.finditer(line.text):
            at = bracket.start()
            if bracket[0] == "(":
                if depth == 0:
                    _refuse_outside(line.text[done:at], line.where)
                    begin, done = line.where, at
                depth += 1
                continue
            if depth == 0:
                raise UserError(f"{line.where}: ')' at character {at + 1} closes no bracket")
            depth -= 1
            if depth == 0:
                yield " ".join([*parts, line.text[done : at + 1]]), begin
                parts, done = [], at + 1
        if depth:
            parts.append(line.text[done:])
        else:
            _refuse_outside(line.text[done:], line.where)
    if depth:
        raise UserError(f"{begin}: the tree that begins here is never closed: {depth} ')' are missing")


def _one_tree(text: str) -> bool:
    """Whether a line is exactly one tree, as most are."""
    if not (text.startswith("(") and text.endswith(")")):
        return False
    codes = np.frombuffer(text.encode("utf-8", "surrogatepass"), dtype=np.uint8)
    change = codes[(codes == ord("(")) | (codes == ord(")"))]
    depth = np.cumsum(1 - 2 * (change == ord(")")).astype(np.int64))
    return bool(depth[-1] == 0 and (depth[:-1] > 0).all())


def _lines(path: Path, encoding: str) -> Iterator[Line]:
    """The lines of a file, or the cells of a dataset's column of trees."""
    hub = hub_name(path)
    if hub is None:
        yield from read_lines(path, encoding=encoding)
        return
    for row in hub_rows(hub.name, (_COLUMN,), config=hub.config, split=hub.split):
        yield Line(row.text(_COLUMN), row.where)


def _refuse_outside(text: str, where: Where) -> None:
    if text.strip():
        raise UserError(
            f"{where}: {text.strip()[:40]!r} stands outside any tree",
            fix="write trees as (label child child) or (label word); brackets in words as -LRB- and -RRB-",
        )


def parse_tree(text: str, where: Where) -> Tree:
    flat = parse_flat(text, where)
    made: list[Tree | str] = [""] * len(flat.labels)
    for node in reversed(range(len(made))):  # children before their parent
        label, word = flat.labels[node], flat.words[node]
        if label is None:
            made[node] = word or ""
        else:
            made[node] = Tree(label, [made[child] for child in flat.children[node]] if word is None else [word])
    assert isinstance(made[0], Tree)
    return made[0]


def flat_tree(labelled: LabelledTree) -> FlatTree:
    if isinstance(labelled.tree, FlatTree):
        return labelled.tree
    flat = FlatTree([], [], [], [])
    for number, node in enumerate(nodes_of(labelled.tree)):
        if node.parent >= 0:
            flat.children[node.parent].append(number)
        flat.children.append([])
        flat.labels.append(node.label)
        flat.words.append(node.word)
        flat.written_as.append(number)
    return flat
