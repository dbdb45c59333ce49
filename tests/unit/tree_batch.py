"""Trees as tensors, node by node: the oracle of the fast path in `tasks/tree`."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from statewise.data import NO_LABEL, NO_WORD, LabelledTree, Labels
from statewise.data.trees import nodes_of
from statewise.kernels.tree import Forest, forest


class TreeBatch(NamedTuple):
    """Nodes in the order of writing, parents first. A word and the label around it alone are one node."""

    forest: Forest
    word_N: Tensor  # NO_WORD: nothing stands here
    label_N: Tensor  # NO_LABEL: none is known


def tree_batch(trees: Sequence[LabelledTree], *, word_ids: Sequence[Sequence[int]], labels: Labels) -> TreeBatch:
    """Trees as tensors; `word_ids` are the ids of each tree's words. A label `labels` does not know is -100."""
    children: list[list[int]] = []
    roots, words, known = [], [], []
    for (tree, _), ids in zip(trees, word_ids, strict=True):
        first = len(children)
        roots.append(first)
        left = iter(ids)
        for node in nodes_of(tree):
            if node.parent >= 0:
                children[first + node.parent].append(len(children))
            children.append([])
            words.append(NO_WORD if node.word is None else next(left))
            known.append(NO_LABEL if node.label is None else labels.find(node.label, default=NO_LABEL))
        assert next(left, None) is None
    return TreeBatch(forest(children, roots), torch.tensor(words), torch.tensor(known))
