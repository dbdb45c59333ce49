"""A tree as flat lists of nodes: parse brackets, collapse unary chains, binarise.

N nodes of one tree.
"""

import re
from sys import intern
from typing import Literal, NamedTuple

from statewise.data.lines import Where
from statewise.specs import UserError

_SPACE = r" \t\n\r\f\v"  # other white space may be part of a word
# An opening bracket with its label and, for a leaf, its word and closing bracket; or the end of a node; or a word.
_PART = re.compile(rf"\([{_SPACE}]*([^{_SPACE}()]*)(?:[{_SPACE}]+([^{_SPACE}()]+)[{_SPACE}]*\))?|(\)|[^{_SPACE}()]+)")
_OPENED = ("", "", "")  # a bracket without a label
_LEAF: list[int] = []  # shared by all leaves (there are millions), never written to


class FlatTree(NamedTuple):
    """Nodes of one tree, parents first, words from left to right; `written_as` maps nodes of the file to these.

    Nodes added by `binarised` come last, without label and word; nodes merged by `collapsed` all map to one.
    """

    children: list[list[int]]
    labels: list[str | None]
    words: list[str | None]
    written_as: list[int]

    @property
    def root_label(self) -> str | None:
        return self.labels[0]

    def sentence(self) -> list[str]:
        return [word for word in self.words if word is not None]

    def relabelled(self, names: dict[str, str]) -> "FlatTree":
        """With renamed labels; a label renamed to `""` is removed."""
        if not names:
            return self
        new = [None if label is None else names.get(label, label) or None for label in self.labels]
        return self._replace(labels=new)


def parse_flat(text: str, where: Where) -> FlatTree:
    """Parse one tree in brackets as `nltk.Tree.fromstring` does, but without its depth limit."""
    parts = _PART.findall(text)
    if parts[0] == _OPENED:  # Penn's brackets around a whole tree
        parts = parts[1:-1]
    children: list[list[int]] = []
    labels: list[str | None] = []
    words: list[str | None] = []
    roots: list[int] = []
    above = [roots]
    for label, word, other in parts:
        if other == ")":
            if not above.pop():
                empty = next(node for node, own in enumerate(children) if not own and words[node] is None)
                raise UserError(
                    f"{where}: node ({labels[empty]}) has neither children nor a word", fix="write (label word)"
                )
            continue
        above[-1].append(len(labels))
        if other:
            children.append(_LEAF)
            labels.append(None)
            words.append(intern(other))
            continue
        if not label:
            raise _no_label(where)
        labels.append(intern(label))
        if word:
            children.append(_LEAF)
            words.append(intern(word))
        else:
            own: list[int] = []
            children.append(own)
            words.append(None)
            above.append(own)
    if len(roots) != 1:
        raise _no_label(where)
    return FlatTree(children, labels, words, list(range(len(labels))))


def _no_label(where: Where) -> UserError:
    return UserError(f"{where}: a node has no label", fix="write every node as (label …)")


def collapsed(flat: FlatTree) -> FlatTree:
    """Merge each node with its only child; the upper label stays."""
    top: list[int] = list(range(len(flat.children)))  # the node that each is merged into
    for parent, children in enumerate(flat.children):  # parents first, so that a chain ends at its top
        if len(children) == 1:
            top[children[0]] = top[parent]
    kept = [node for node in range(len(top)) if top[node] == node]
    place = {node: number for number, node in enumerate(kept)}
    labels = [flat.labels[node] for node in kept]
    made = FlatTree([[] for _ in kept], labels, [None] * len(kept), [place[node] for node in top])
    for node, at in enumerate(made.written_as):
        made.words[at] = flat.words[node]  # only the lowest of a chain can have one
        if len(flat.children[node]) > 1:
            made.children[at].extend(place[child] for child in flat.children[node])
    return made


def binarised(flat: FlatTree, side: Literal["left", "right"]) -> FlatTree:
    """More than two children as nested pairs: `((a b) c)` from the left, `(a (b c))` from the right."""
    children = [list(own) for own in flat.children]
    for node in range(len(flat.children)):
        many = children[node] if side == "left" else children[node][::-1]
        if len(many) <= 2:
            continue
        outer, *rest = many
        for inner in rest[:-1]:
            children.append([outer, inner] if side == "left" else [inner, outer])
            outer = len(children) - 1
        children[node] = [outer, rest[-1]] if side == "left" else [rest[-1], outer]
    new = len(children) - len(flat.children)
    return FlatTree(children, flat.labels + [None] * new, flat.words + [None] * new, flat.written_as)


def depth_of(flat: FlatTree) -> int:
    """Edges from the root to the deepest node."""
    deepest, level = -1, [0]
    while level:
        deepest += 1
        level = [child for node in level for child in flat.children[node]]
    return deepest


def spans_of(flat: FlatTree) -> tuple[list[int], list[int]]:
    """For each node of a tree as written: index of its first word, and of the first word after it."""
    ends, begins, words = [0] * len(flat.children), [], 0
    for word in flat.words:
        begins.append(words)
        words += word is not None
    for node in reversed(range(len(flat.children))):
        ends[node] = ends[flat.children[node][-1]] if flat.children[node] else begins[node] + 1
    return begins, ends
