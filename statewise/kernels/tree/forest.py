"""Trees as arrays: for every node its children, and the nodes of each depth, deepest first.

N nodes of all trees together, K most children of a node, B trees, M nodes of one depth.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from statewise.specs import UserError

Index = NDArray[np.int64]
_LARGEST = 1 << 26  # places for children


class Level(NamedTuple):
    """The nodes of one depth. Their children are all at the next depth, which was computed just before."""

    node_M: Tensor
    # Place of a child among the nodes of the next depth, counted from 1; 0: there is none. K is that of this depth.
    child_MK: Tensor


class Forest(NamedTuple):
    """Several trees. Built by `forest`, `balanced`, `chain` or `from_nltk`."""

    children_NK: Tensor  # -1: there is none
    root_B: Tensor  # -1: an empty tree
    levels: tuple[Level, ...]

    @property
    def arity(self) -> int:
        return self.children_NK.shape[1]

    def to(self, device: torch.device) -> "Forest":
        parts = [self.children_NK, self.root_B, *(part for level in self.levels for part in level)]
        if all(part.device == device for part in parts):
            return self
        # One journey for all: a deep forest has many small parts, and each would take a journey of its own.
        flat = torch.cat([part.flatten() for part in parts]).to(device, non_blocking=True)
        moved = [one.view(part.shape) for one, part in zip(torch.split(flat, [part.numel() for part in parts]), parts)]
        return Forest(moved[0], moved[1], tuple(map(Level, moved[2::2], moved[3::2])))


def forest(children: Sequence[Sequence[int]] | Index, roots: Sequence[int] | Index) -> Forest:
    """From the children of every node (-1, or a shorter list, where there are fewer) and the roots."""
    children_NK, root_B = _rectangle(children), np.asarray(roots, dtype=np.int64)
    if children_NK.size and (children_NK.max() >= len(children_NK) or root_B.max(initial=-1) >= len(children_NK)):
        raise UserError(f"a node is named that is not among the {len(children_NK)}")
    levels, reached = [], 0
    nodes = root_B[root_B >= 0]
    # One node with thousands of children would make thousands of places for every other, so each depth has its own K.
    places_N = _places(children_NK)
    while len(nodes):
        reached += len(nodes)
        if reached > len(children_NK):
            break  # a node was met twice, perhaps for ever
        below_MK = children_NK[nodes, : max(1, places_N[nodes].max())]
        there_MK = below_MK >= 0
        place_MK = np.where(there_MK, there_MK.cumsum().reshape(there_MK.shape), 0)
        levels.append(Level(torch.from_numpy(nodes), torch.from_numpy(place_MK)))
        nodes = below_MK[there_MK]
    if reached != len(children_NK):
        raise UserError("these are not trees: every node must have one parent, or be a root")
    return Forest(torch.from_numpy(children_NK), torch.from_numpy(root_B), tuple(levels[::-1]))


def _places(children_NK: Index) -> Index:
    """How many places each node's children take up, gaps before the last one and all."""
    there_NK = children_NK >= 0
    return np.where(there_NK.any(1), there_NK.shape[1] - there_NK[:, ::-1].argmax(1), 0)


def _rectangle(children: Sequence[Sequence[int]] | Index) -> Index:
    if isinstance(children, np.ndarray):
        return children.astype(np.int64)
    most = max([1, *map(len, children)])
    if len(children) * most > _LARGEST:
        raise UserError(
            f"a node of {len(children):,} has {most:,} children: all nodes with as many places take "
            f"{8 * len(children) * most / 2**30:,.1f} GiB",
            fix="leave such trees out, or take fewer of them at a time",
        )
    children_NK = np.full((len(children), most), -1, dtype=np.int64)
    for node, some in enumerate(children):
        children_NK[node, : len(some)] = some
    return children_NK


def balanced(lengths: Sequence[int]) -> Forest:
    """Neighbours in pairs, pairs in pairs, …: depth log2 of the length. All leaves come first, row by row."""
    first = sum(lengths)
    inner: list[list[int]] = []
    roots, begin = [], 0
    for length in lengths:
        nodes = list(range(begin, begin + length))
        begin += length
        while len(nodes) > 1:
            above = []
            for left in range(0, len(nodes) - 1, 2):
                above.append(first + len(inner))
                inner.append([nodes[left], nodes[left + 1]])
            nodes = above + nodes[2 * len(above) :]  # an odd one out waits
        roots.append(nodes[0] if nodes else -1)
    leaves = np.full((first, 2), -1, dtype=np.int64)
    return forest(np.concatenate([leaves, np.array(inner, dtype=np.int64).reshape(-1, 2)]), roots)


def chain(lengths: Sequence[int]) -> Forest:
    """Each time step the parent of the one before: a sequence, as a degenerate tree. Nodes row by row."""
    children_N1 = np.arange(-1, sum(lengths) - 1, dtype=np.int64)[:, None]
    end_B = np.cumsum(np.asarray(lengths, dtype=np.int64)) - 1
    begin_B = end_B + 1 - np.asarray(lengths, dtype=np.int64)
    full_B = np.asarray(lengths) > 0
    children_N1[begin_B[full_B]] = -1
    return forest(children_N1, np.where(full_B, end_B, -1))


def from_nltk(trees: Sequence[Any]) -> tuple[Forest, list[str]]:
    """Of trees of `statewise.data` or of NLTK, the forest and the label of every node: a leaf's is its word.

    A word by itself is a tree of one node.
    """
    children: list[list[int]] = []
    labels: list[str] = []
    roots = []
    for tree in trees:
        roots.append(len(children))
        waiting = [(tree, -1)]  # no recursion: parse trees of long sentences may be deep
        while waiting:
            node, parent = waiting.pop()
            if parent >= 0:
                children[parent].append(len(children))
            word = isinstance(node, str)
            waiting += [(child, len(children)) for child in ([] if word else reversed(node))]
            children.append([])
            labels.append(node if word else str(node.label()))
    return forest(children, roots), labels
