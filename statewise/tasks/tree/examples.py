"""Trees as a model reads them: flat arrays of all nodes, out of which a batch is cut without a loop over nodes.

N nodes of all trees together, B trees, W words, M nodes of a batch, T time.
"""

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, repeat
from operator import is_not
from pathlib import Path
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
    Coded,
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
Wanted = Callable[[Index], NDArray[np.bool_]]  # which of some nodes
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
    refuse_standard_input(spec)
    if not spec.train:
        kind = spec.embedded
        trees = ast_trees() if kind == "syntax" else operations(kind, seed=seed)
        return formed(trees.train, spec, learned=True), formed(trees.held, spec)
    read = formed(read_flat_trees(spec.train, encoding=spec.encoding), spec, learned=True)
    if spec.validation:
        return read, formed(read_flat_trees(spec.validation, encoding=spec.encoding), spec)
    split = hold_out(len(read.trees), share=spec.held_out, seed=seed, strata=[tree.root_label for tree in read.trees])
    return read.chosen(split.train_N)._replace(dropped=read.dropped), read.chosen(split.held_M)


def refuse_standard_input(spec: TreeDataSpec) -> None:
    if "-" in (*spec.train, *spec.validation):
        raise UserError("trees cannot be learned from standard input: they are read again later", fix="name files")


def formed(trees: Sequence[LabelledTree], spec: TreeDataSpec, *, learned: bool = False) -> Read:
    """In the form that the spec asks for. Where they are `learned` from, the names it gives must be met."""
    flat = [flat_tree(tree) for tree in trees]
    if learned and spec.labels:
        refuse_new_names(spec, {label for tree in flat for label in tree.labels if label is not None})
    made = [form(tree, spec) for tree in flat]
    where = [tree.where for tree in trees]
    if spec.unlabelled_root == "keep":
        return Read(made, where)
    kept = np.flatnonzero([tree.root_label is not None for tree in made])
    refuse_none_left(len(kept))
    return Read(made, where).chosen(kept)._replace(dropped=len(made) - len(kept))


def refuse_new_names(spec: TreeDataSpec, names: Collection[str]) -> None:
    """`data.labels` renames what is there."""
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


def refuse_none_left(kept: int) -> None:
    if not kept:
        raise UserError(
            "no tree has a label at its root that counts",
            fix="check data.labels, or set data.unlabelled_root = keep to learn from the other nodes",
        )


def form(flat: FlatTree, spec: TreeDataSpec) -> FlatTree:
    if spec.unary == "collapse":
        flat = collapsed(flat)
    flat = flat.relabelled(spec.labels)
    return flat if spec.binarise == "none" else binarised(flat, spec.binarise)


def refuse_wide(spec: TreeSpec, read: Read) -> None:
    """A node with more children than the composer has places for."""
    if spec.most_children is not None:
        refuse_wider(spec, map(widest, read.trees), read.where)


def widest(tree: FlatTree) -> int:
    return max(map(len, tree.children))


def refuse_wider(spec: TreeSpec, widest_B: Iterable[int], where: Sequence[Where]) -> None:
    arity = spec.most_children
    for number, children in enumerate(widest_B):
        if arity is not None and children > arity:
            raise UserError(
                f"{where[number]}: a node has {children} children, model.arity is {arity}",
                fix=f"set data.binarise = left, or model.arity = {children}, or take model.kind = child_sum",
            )


class Nodes(NamedTuple):
    """All nodes of all trees, one after the other; the nodes of tree b begin at `first_B[b]`, its root."""

    size_B: Index
    first_B: Index
    depth_B: Index
    words_B: Index  # how many
    words_W: Index | Coded  # of all trees
    word_N: Index | Coded
    label_N: Index | Coded
    parent_N: Index | Coded  # counted inside its tree
    place_N: Index | Coded  # among the parent's children
    begin_N: Index | Coded  # of its words, among all
    end_N: Index | Coded


def flattened(trees: Sequence[FlatTree], *, tokenizer: Tokenizer, classes: Labels, spans: bool) -> Nodes:
    """With `spans`, it is known where the words of each node are."""
    size_B = np.array([len(tree.children) for tree in trees], dtype=np.int64)
    first_B = np.cumsum(size_B) - size_B
    depth_B = np.array([depth_of(tree) for tree in trees], dtype=np.int64)
    sentences = [tree.sentence() for tree in trees]
    words_W = tokenizer.encode_words([word for sentence in sentences for word in sentence])
    has_word_N = _each(map(partial(is_not, None), chain.from_iterable(tree.words for tree in trees)), np.bool_)
    word_N = np.full(len(has_word_N), NO_WORD, dtype=np.int64)
    # Words of a tree come from left to right, as its nodes do.
    word_N[has_word_N] = words_W
    known: dict[str | None, int] = {None: NO_LABEL, **{name: k for k, name in enumerate(classes.names)}}
    labels = chain.from_iterable(tree.labels for tree in trees)
    label_N = _each(map(known.get, labels, repeat(UNSEEN)), np.int64)
    words_B = np.array([len(sentence) for sentence in sentences], dtype=np.int64)
    nothing: Index = np.zeros(0, dtype=np.int64)
    begin_N, end_N = _spans(trees, words_B) if spans else (nothing, nothing)
    parents = _parents(trees, size_B, first_B)
    return Nodes(size_B, first_B, depth_B, words_B, words_W, word_N, label_N, *parents, begin_N, end_N)


@final
class Trees:
    """Nodes as trees, or as the spans of words below them."""

    def __init__(self, nodes: Nodes, *, spans: bool) -> None:
        self.spans, self.label_N = spans, nodes.label_N
        self.size_B, self.first_B, self.depth_B, self.words_B = nodes[:4]
        self._words_W, self._word_N = nodes.words_W, nodes.word_N
        self._parent_N, self._place_N = nodes.parent_N, nodes.place_N
        self._begin_N, self._end_N = nodes.begin_N, nodes.end_N

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

    def is_root(self, node_M: Index) -> NDArray[np.bool_]:
        return self._parent_N[node_M] < 0

    def span_lengths(self, node_M: Index) -> Index:
        """Words below each of some nodes."""
        return self._end_N[node_M] - self._begin_N[node_M]

    def batches(self, tree_B: Index, *, wanted: Wanted, device: torch.device) -> Iterator[Batch]:
        """Some trees for the model: whole, or as the spans of those of their nodes that are wanted."""
        if not self.spans:
            yield self._whole(tree_B, device)
            return
        node_M = self.nodes(tree_B)
        node_M = node_M[wanted(node_M)]
        # Spans of a batch are of any length; those within a factor of two are read together.
        length_M = self.span_lengths(node_M)
        order_M = np.argsort(length_M, kind="stable")
        node_M, bits_M = node_M[order_M], np.ceil(np.log2(length_M[order_M]))
        for some in np.split(node_M, np.flatnonzero(np.diff(bits_M)) + 1):
            if len(some):
                longest = int(self.span_lengths(some[-1:])[0])
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
        begin_M, length_M = self._begin_N[node_M], self.span_lengths(node_M)
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


class Learned(NamedTuple):
    """Trees to learn from, and what was found of them."""

    trees: Trees
    sha256: str
    roots: Counter[str]
    dropped: int


def roots_of(trees: Iterable[FlatTree]) -> Counter[str]:
    return Counter(tree.root_label for tree in trees if tree.root_label is not None)


def learned_labels(tree: FlatTree, nodes: str) -> list[str]:
    labels = tree.labels[:1] if nodes == "root" else tree.labels
    return [label for label in labels if label is not None]


def learn(spec: TreeSpec, words: Iterable[str], labels: Iterable[str]) -> tuple[Tokenizer, Labels]:
    """Words and classes, of the training part alone."""
    data = spec.data
    tokenizer = Tokenizer.train("whole", words, vocab=data.vocab, lower=data.lower, min_count=data.min_count)
    return tokenizer, Labels.of(labels)


def load_vocabularies(folder: Path) -> tuple[Tokenizer, Labels]:
    tokenizer = Tokenizer.load(folder / "tokenizer.json")
    return tokenizer, Labels.from_json((folder / "labels.json").read_text(encoding="utf-8"))
