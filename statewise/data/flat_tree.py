"""A tree as lists: read from its brackets, and the forms it can be brought into.

N nodes of one tree.
"""

import re
from sys import intern
from typing import Literal, NamedTuple

from statewise.data.lines import Where
from statewise.specs import UserError

_SPACE = r" \t\n\r\f\v"  # white space of other kinds may stand inside a word
# A bracket with the label behind it and, if that is all, a word; or the end of a node, or a word among others.
_PART = re.compile(rf"\([{_SPACE}]*([^{_SPACE}()]*)(?:[{_SPACE}]+([^{_SPACE}()]+)[{_SPACE}]*\))?|(\)|[^{_SPACE}()]+)")
_OPENED = ("", "", "")  # a bracket without a label
_LEAF: list[int] = []  # millions of nodes have no children: they share this list, and nobody writes to it


class FlatTree(NamedTuple):
    """Nodes of one tree; `written_as` says where each node that was written down is now.

    As written, parents come first and words from left to right. A node made by `binarised` stands at the end and has
    neither a label nor a word; nodes that `collapsed` made one are all written as that one.
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
        """With other names of labels; to become `""` is to be without one."""
        if not names:
            return self
        new = [None if label is None else names.get(label, label) or None for label in self.labels]
        return self._replace(labels=new)


def parse_flat(text: str, where: Where) -> FlatTree:
    """One tree in brackets, as `nltk.Tree.fromstring` reads it, but without its limit of depth."""
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
    """A node and its only child are one, with the label of the upper."""
    top: list[int] = list(range(len(flat.children)))  # the node that each becomes part of
    for parent, children in enumerate(flat.children):  # parents first, so that a chain ends at its top
        if len(children) == 1:
            top[children[0]] = top[parent]
    kept = [node for node in range(len(top)) if top[node] == node]
    place = {node: number for number, node in enumerate(kept)}
    labels = [flat.labels[node] for node in kept]
    made = FlatTree([[] for _ in kept], labels, [None] * len(kept), [place[node] for node in top])
    for node, at in enumerate(made.written_as):
        made.words[at] = flat.words[node]  # of a chain, only the lowest can have one
        if len(flat.children[node]) > 1:
            made.children[at].extend(place[child] for child in flat.children[node])
    return made


def binarised(flat: FlatTree, side: Literal["left", "right"]) -> FlatTree:
    """Several children as pairs of pairs: `((a b) c)` from the left, `(a (b c))` from the right."""
    children = [list(some) for some in flat.children]
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
    """Of each node of a tree as written, the first of its words, and the first after them."""
    ends, begins, words = [0] * len(flat.children), [], 0
    for word in flat.words:
        begins.append(words)
        words += word is not None
    for node in reversed(range(len(flat.children))):
        ends[node] = ends[flat.children[node][-1]] if flat.children[node] else begins[node] + 1
    return begins, ends
