"""Trees as a model reads them: flat arrays of all nodes, out of which a batch is cut without a loop over nodes.

N nodes of all trees together, B trees, W words, M nodes of a batch, T time.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, repeat
from operator import is_not
from typing import Any, NamedTuple, TypeVar, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from statewise.core import onto
from statewise.data import (
    NO_LABEL,
    NO_WORD,
    UNSEEN,
    FlatTree,
    LabelledTree,
    Labels,
    Tokenizer,
    Where,
    binarised,
    collapsed,
    depth_of,
    flat_tree,
    hold_out,
    read_flat_trees,
    spans_of,
)
from statewise.data.embedded import ast_trees, operations
from statewise.encoders import Forest, forest
from statewise.specs import TreeDataSpec, TreeSpec, UserError, either, nearest

Index = NDArray[np.int64]
D = TypeVar("D", bound=np.generic)
_SPAN_TOKENS = 1 << 16  # of one batch of spans, padding and all: the spans of a deep tree would fill any memory


class Read(NamedTuple):
    """Trees in the form the model learns from, and how many were left out since their root has no label."""

    trees: list[FlatTree]
    where: list[Where]
    dropped: int = 0

    def chosen(self, index: Index) -> "Read":
        return Read([self.trees[i] for i in index], [self.where[i] for i in index])


class Batch(NamedTuple):
    """What a model is called with, and the nodes (among all) that its answers are for."""

    inputs: tuple[Any, ...]
    node_M: Index


def read_split(spec: TreeDataSpec, *, seed: int) -> tuple[Read, Read]:
    """What is learned from and what is held out."""
    if "-" in (*spec.train, *spec.validation):
        raise UserError("trees cannot be learned from standard input: they are read again later", fix="name files")
    if not spec.train:
        kind = spec.embedded
        trees = ast_trees() if kind == "syntax" else operations(kind, seed=seed)
        return formed(trees.train, spec, learned=True), formed(trees.held, spec)
    read = formed(read_flat_trees(spec.train, encoding=spec.encoding), spec, learned=True)
    if spec.validation:
        return read, formed(read_flat_trees(spec.validation, encoding=spec.encoding), spec)
    split = hold_out(len(read.trees), share=spec.held_out, seed=seed, strata=[tree.root_label for tree in read.trees])
    return read.chosen(split.train_N)._replace(dropped=read.dropped), read.chosen(split.held_M)


def formed(trees: Sequence[LabelledTree], spec: TreeDataSpec, *, learned: bool = False) -> Read:
    """In the form that the spec asks for. Where they are `learned` from, the names it gives must be met."""
    flat = [flat_tree(tree) for tree in trees]
    if learned and spec.labels:
        names = {label for tree in flat for label in tree.labels if label is not None}
        for name in spec.labels:
            if name not in names:
                table = ", ".join(f'{json.dumps(name, ensure_ascii=False)} = "NEW"' for name in sorted(names)[:8])
                renamed = either(
                    f"--set 'data.labels={{{table}}}'", f'settings={{"data.labels": {{{table.replace(" =", ":")}}}}}'
                )
                raise UserError(
                    f"data.labels renames {name!r}, but no node has that label",
                    fix=f'{nearest(name, names)}; give each its new name, or "" to exclude it: {renamed}',
                )
    made = [form(tree, spec) for tree in flat]
    where = [tree.where for tree in trees]
    if spec.unlabelled_root == "keep":
        return Read(made, where)
    kept = np.flatnonzero([tree.root_label is not None for tree in made])
    if not len(kept):
        raise UserError(
            "no tree has a label at its root that counts",
            fix="check data.labels, or set data.unlabelled_root = keep to learn from the other nodes",
        )
    return Read(made, where).chosen(kept)._replace(dropped=len(made) - len(kept))


def form(flat: FlatTree, spec: TreeDataSpec) -> FlatTree:
    if spec.unary == "collapse":
        flat = collapsed(flat)
    flat = flat.relabelled(spec.labels)
    return flat if spec.binarise == "none" else binarised(flat, spec.binarise)


def refuse_wide(spec: TreeSpec, read: Read) -> None:
    """A node with more children than the composer has places for."""
    arity = spec.most_children
    if arity is None:
        return
    for tree, where in zip(read.trees, read.where):
        widest = max(map(len, tree.children))
        if widest > arity:
            raise UserError(
                f"{where}: a node has {widest} children, model.arity is {arity}",
                fix=f"set data.binarise = left, or model.arity = {widest}, or take model.kind = child_sum",
            )


@final
class Trees:
    """All nodes of all trees, one after the other; the nodes of tree b begin at `first_B[b]`, its root."""

    def __init__(self, trees: Sequence[FlatTree], *, tokenizer: Tokenizer, classes: Labels, spans: bool) -> None:
        self.spans = spans
        self.size_B = np.array([len(tree.children) for tree in trees], dtype=np.int64)
        self.first_B = np.cumsum(self.size_B) - self.size_B
        self.depth_B = np.array([depth_of(tree) for tree in trees], dtype=np.int64)
        sentences = [tree.sentence() for tree in trees]
        words_W = tokenizer.encode_words([word for sentence in sentences for word in sentence])
        self._words_W = words_W
        has_word_N = _each(map(partial(is_not, None), chain.from_iterable(tree.words for tree in trees)), np.bool_)
        self._word_N = np.full(len(has_word_N), NO_WORD, dtype=np.int64)
        # Words of a tree come from left to right, as its nodes do.
        self._word_N[has_word_N] = words_W
        known: dict[str | None, int] = {None: NO_LABEL, **{name: k for k, name in enumerate(classes.names)}}
        labels = chain.from_iterable(tree.labels for tree in trees)
        self.label_N = _each(map(known.get, labels, repeat(UNSEEN)), np.int64)
        self._parent_N, self._place_N = _parents(trees, self.size_B, self.first_B)
        self.words_B = np.array([len(sentence) for sentence in sentences], dtype=np.int64)
        nothing: Index = np.zeros(0, dtype=np.int64)
        self._begin_N, self._end_N = _spans(trees, self.words_B) if spans else (nothing, nothing)

    def __len__(self) -> int:
        return len(self.size_B)

    @property
    def costs_B(self) -> Index:
        """What trees of one batch should have in common: compositions in a row, or words."""
        return self.words_B if self.spans else self.depth_B

    def nodes(self, tree_B: Index) -> Index:
        """All nodes of some trees, tree by tree."""
        size_B = self.size_B[tree_B]
        shift_B = self.first_B[tree_B] - (np.cumsum(size_B) - size_B)
        return np.repeat(shift_B, size_B) + np.arange(size_B.sum())

    def span_lengths(self, wanted_N: NDArray[np.bool_]) -> Index:
        """Words below each of some nodes; nothing where trees are read as trees."""
        length_N = self._end_N - self._begin_N
        return length_N[wanted_N] if self.spans else length_N

    def batches(self, tree_B: Index, *, wanted_N: NDArray[np.bool_], device: torch.device) -> Iterator[Batch]:
        """Some trees for the model: whole, or as the spans of those of their nodes that are wanted."""
        if not self.spans:
            yield self._whole(tree_B, device)
            return
        node_M = self.nodes(tree_B)
        node_M = node_M[wanted_N[node_M]]
        # Spans of a batch are of any length; those within a factor of two are read together.
        length_M = self._end_N[node_M] - self._begin_N[node_M]
        order_M = np.argsort(length_M, kind="stable")
        node_M, bits_M = node_M[order_M], np.ceil(np.log2(length_M[order_M]))
        for some in np.split(node_M, np.flatnonzero(np.diff(bits_M)) + 1):
            if len(some):
                longest = int(self._end_N[some[-1]] - self._begin_N[some[-1]])
                rows = max(1, _SPAN_TOKENS // longest)
                for begin in range(0, len(some), rows):
                    yield self._spans_of(some[begin : begin + rows], device)

    def _whole(self, tree_B: Index, device: torch.device) -> Batch:
        node_M = self.nodes(tree_B)
        size_B = self.size_B[tree_B]
        first_B = np.cumsum(size_B) - size_B
        parent_M, place_M = self._parent_N[node_M], self._place_N[node_M]
        below_M = np.flatnonzero(parent_M >= 0)
        children_MK = np.full((len(node_M), place_M.max(initial=0) + 1), -1, dtype=np.int64)
        children_MK[(parent_M + np.repeat(first_B, size_B))[below_M], place_M[below_M]] = below_M
        made: Forest = forest(children_MK, first_B).to(device)
        return Batch((_on(self._word_N[node_M], device), made), node_M)

    def _spans_of(self, node_M: Index, device: torch.device) -> Batch:
        begin_M = self._begin_N[node_M]
        length_M = self._end_N[node_M] - begin_M
        at_MT = begin_M[:, None] + np.minimum(np.arange(length_M.max()), length_M[:, None] - 1)
        return Batch((_on(self._words_W[at_MT], device), _on(length_M, device)), node_M)


def _on(array: NDArray[Any], device: torch.device) -> Tensor:
    return onto(device, torch.from_numpy(array))


def _each(values: Iterable[Any], dtype: type[D]) -> NDArray[D]:
    """An array of what iterators in C give: a loop over millions of nodes would take as long as to read them."""
    return np.fromiter(values, dtype)


def _parents(trees: Sequence[FlatTree], size_B: Index, first_B: Index) -> tuple[Index, Index]:
    """Of each node its parent, counted inside its tree, and its place among the parent's children."""
    count_N = _each(map(len, chain.from_iterable(tree.children for tree in trees)), np.int64)
    child_M = _each(chain.from_iterable(chain.from_iterable(tree.children for tree in trees)), np.int64)
    shift_N = np.repeat(first_B, size_B)
    below_M = np.repeat(shift_N, count_N) + child_M
    parent_N, place_N = np.full(len(count_N), -1, dtype=np.int64), np.zeros(len(count_N), dtype=np.int64)
    parent_N[below_M] = np.repeat(np.arange(len(count_N)) - shift_N, count_N)
    place_N[below_M] = np.arange(len(child_M)) - np.repeat(np.cumsum(count_N) - count_N, count_N)
    return parent_N, place_N


def _spans(trees: Sequence[FlatTree], words_B: Index) -> tuple[Index, Index]:
    """Of each node, where its words begin and end among the words of all trees."""
    begins: list[NDArray[np.int64]] = []
    ends: list[NDArray[np.int64]] = []
    for tree, first in zip(trees, np.cumsum(words_B) - words_B):
        begin, end = spans_of(tree)
        begins.append(np.array(begin) + first)
        ends.append(np.array(end) + first)
    return np.concatenate(begins), np.concatenate(ends)
