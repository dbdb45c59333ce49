"""A tree as lists, and the forms it can be brought into: no unary chains, no more than two children.

N nodes of one tree.
"""

from typing import Literal, NamedTuple

from statewise.data.trees import LabelledTree, nodes_of


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
        new = [None if label is None else names.get(label, label) or None for label in self.labels]
        return self._replace(labels=new)


def flat_tree(one: LabelledTree) -> FlatTree:
    flat = FlatTree([], [], [], [])
    for number, node in enumerate(nodes_of(one.tree)):
        if node.parent >= 0:
            flat.children[node.parent].append(number)
        flat.children.append([])
        flat.labels.append(node.label)
        flat.words.append(node.word)
        flat.written_as.append(number)
    return flat


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
