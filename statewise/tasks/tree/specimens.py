"""Trees under a lens: composed node by node, or read as the words below the root.

N copies of a tree, T nodes (or words), M nodes of all trees together, E width, K classes.
"""

from collections.abc import Callable
from typing import Any, assert_never, final

import numpy as np
import torch
from torch import Tensor

from statewise.data import NO_LABEL, NO_WORD, Labels, Tokenizer
from statewise.encoders import Forest, balanced, chain, forest
from statewise.kernels.tree import order
from statewise.layers import Embedding
from statewise.models import Classifier, NodeClassifier, SpanClassifier, TreeClassifier
from statewise.specs import TreeSpec
from statewise.tasks.specimen import (
    UNKNOWN,
    Choices,
    Composed,
    Floats,
    Index,
    Poll,
    ReaderParts,
    Specimen,
    Specimens,
    Words,
    choices,
    chosen_nats,
    places_before_the_end,
    position,
    seen_order,
)
from statewise.tasks.tree.examples import Read
from statewise.tasks.tree.job import counted, log_probabilities, make_trees

_NODES = Words("node", "node", "nats", "edges from the node down", "edge", spaced=True)
_SPANS = Words("word", "row", "nats", "words before the end of the row", "word", text=True, spaced=True)
_EMPTY = "·"  # nothing stands at a node


@final
class TreeSpecimens(Specimens):
    """Of models that follow trees, every node that has a label is asked; of those that read words, the root alone."""

    model: NodeClassifier

    def __init__(
        self,
        model: NodeClassifier,
        read: Read,
        *,
        spec: TreeSpec,
        tokenizer: Tokenizer,
        classes: Labels,
        source: str,
        device: torch.device,
    ) -> None:
        self.model, self.source, self.has_truth = model, source, True
        self.words = _SPANS if isinstance(model, Classifier) else _NODES
        self._read, self._classes, self._tokenizer, self._device = read, classes, tokenizer, device
        self._trees = make_trees(spec, read, tokenizer, classes)
        self._label_M = counted(self._trees, roots_only=spec.objective.nodes == "root")
        if not isinstance(model, TreeClassifier):  # spans of inner nodes are rows of their own, and not looked at
            self._label_M = counted(self._trees, roots_only=True)

    def __len__(self) -> int:
        return len(self._trees)

    def length(self, number: int) -> int:
        inside = self._trees.words_B if isinstance(self.model, Classifier) else self._trees.size_B
        return int(inside[number])

    def at(self, number: int) -> Specimen:
        match self.model:
            case TreeClassifier():
                return self._composed(number, self.model, *self._given(number))
            case SpanClassifier():
                return self._composed(number, self.model, *self._built(number, self.model))
            case Classifier():
                return self._along(number, self.model)
            case _:
                assert_never(self.model)

    def answers(self, poll: Poll) -> Choices:
        wanted_M = self._label_M != NO_LABEL
        log_MK = log_probabilities(self.model, self._trees, wanted_N=wanted_M, device=self._device, poll=poll)
        node_N = np.flatnonzero(wanted_M)
        row_M = np.repeat(np.arange(len(self._trees)), self._trees.size_B)
        inside_N = node_N - self._trees.first_B[row_M[node_N]]
        whole = not isinstance(self.model, TreeClassifier)
        return choices(
            tuple(self._classes.names),
            log_MK[node_N],
            np.where(self._label_M[node_N] < 0, UNKNOWN, self._label_M[node_N]),
            row_N=row_M[node_N],
            place_N=np.full(len(node_N), UNKNOWN) if whole else inside_N,
            along_N=np.concatenate([_heights(tree.children) for tree in self._read.trees])[node_N],
            along="edges from the node to its deepest leaf",
        )

    # ---------------------------------------------------------------- one tree

    def _given(self, number: int) -> tuple[Index, Forest, tuple[str, ...], Index]:
        """Words of the nodes, the tree, what stands at each node, and the label of each."""
        tree = self._read.trees[number]
        has_T = np.array([word is not None for word in tree.words])
        word_T = np.full(len(has_T), NO_WORD, dtype=np.int64)
        word_T[has_T] = self._tokenizer.encode_words(tree.sentence())
        pieces = tuple(
            word if word is not None else f"({label or _EMPTY})" for word, label in zip(tree.words, tree.labels)
        )
        first = int(self._trees.first_B[number])
        return word_T, forest(tree.children, [0]), pieces, self._label_M[first : first + len(pieces)]

    def _built(self, number: int, model: SpanClassifier) -> tuple[Index, Forest, tuple[str, ...], Index]:
        """The same of a tree that the model builds over the words itself."""
        sentence = self._read.trees[number].sentence()
        built = (balanced if model.encoder.shape == "balanced" else chain)([len(sentence)])
        nodes = len(built.children_NK)
        word_T = np.full(nodes, NO_WORD, dtype=np.int64)
        word_T[: len(sentence)] = self._tokenizer.encode_words(sentence)
        label_T = np.full(nodes, NO_LABEL, dtype=np.int64)
        label_T[int(built.root_B[0])] = self._label_M[self._trees.first_B[number]]
        return word_T, built, (*sentence, *[f"({_EMPTY})"] * (nodes - len(sentence))), label_T

    def _composed(
        self,
        number: int,
        model: TreeClassifier | SpanClassifier,
        word_T: Index,
        made: Forest,
        pieces: tuple[str, ...],
        label_T: Index,
    ) -> Specimen:
        made_there = made.to(self._device)
        asked = np.flatnonzero(label_T != NO_LABEL)
        if not len(asked):
            asked = made.root_B.numpy()
        asked_Q = torch.from_numpy(asked).to(self._device)
        depth_T, inside = _below(made)

        def distance(question: int) -> Floats:
            node = int(asked[question])
            return np.where(inside(node), depth_T - depth_T[node], np.nan)

        return self._asked(
            number,
            _vectors(model.embedding, word_T, self._device),
            enter=lambda x_NTE: x_NTE,
            read=lambda z_NTE: torch.stack([model.encoder.nodes(z_TE, made_there) for z_TE in z_NTE]),
            logits=lambda y_NTC: model.head(y_NTC[:, asked_Q]),
            label_Q=label_T[asked],
            pieces=pieces,
            named=[pieces[node] for node in asked],
            distance=distance,
            signals={
                "depth": depth_T.astype(np.float32),
                "height": _heights(_children(made)).astype(np.float32),
                "word": (word_T >= 0).astype(np.float32),
            },
            composed=Composed(
                model.encoder.composer, np.concatenate([level.node_M.cpu().numpy() for level in made.levels])
            ),
            seen_order=lambda name, places: np.array(order(made), dtype=np.int64),
        )

    def _along(self, number: int, model: Classifier) -> Specimen:
        parts = ReaderParts(model.reader)
        sentence = tuple(self._read.trees[number].sentence())
        words_T = torch.from_numpy(self._tokenizer.encode_words(list(sentence))).to(self._device)
        with torch.no_grad():
            x_TE = model.reader.entry(words_T[None])[0]
        root = int(self._trees.first_B[number])
        return self._asked(
            number,
            x_TE,
            enter=parts.enter,
            read=parts.read,
            logits=lambda y_NTC: model.head(parts.encoded(y_NTC).summary_BC)[:, None],
            label_Q=self._label_M[root : root + 1],
            pieces=sentence,
            named=["the root"],
            distance=places_before_the_end(len(sentence)),
            machine=parts.machine,
            readers=parts.readers,
            signals={"position": position(len(sentence))},
            seen_order=seen_order,
        )

    def _asked(
        self,
        number: int,
        x_TE: Tensor,
        *,
        enter: Callable[[Tensor], Tensor],
        read: Callable[[Tensor], Tensor],
        logits: Callable[[Tensor], Tensor],
        label_Q: Index,
        named: list[str],
        **more: Any,
    ) -> Specimen:
        """`logits` makes `[N, Q, K]` of what was read."""

        def answer(y_NTC: Tensor, x_NTE: Tensor) -> Tensor:
            return logits(y_NTC).softmax(-1)

        known_Q = torch.from_numpy(label_Q.copy()).to(self._device)
        if bool((known_Q < 0).any()):
            with torch.no_grad():
                own_Q = answer(read(enter(x_TE[None])), x_TE[None])[0].argmax(-1)
            known_Q = torch.where(known_Q < 0, own_Q, known_Q)
        labels = self._classes.decode(known_Q.tolist())
        return Specimen(
            name=str(self._read.where[number]),
            x_TE=x_TE,
            enter=enter,
            read=read,
            judge=lambda y_NTC, x_NTE: chosen_nats(answer(y_NTC, x_NTE), known_Q),
            answer=answer,
            questions=tuple(f"{piece} as {label}" for piece, label in zip(named, labels)),
            **more,
        )


@torch.no_grad()
def _vectors(embedding: Embedding, word_T: Index, device: torch.device) -> Tensor:
    """0 where no word stands."""
    there_M = torch.from_numpy(np.flatnonzero(word_T >= 0)).to(device)
    x_MI: Tensor = embedding(torch.from_numpy(word_T[word_T >= 0]).to(device))
    return x_MI.new_zeros(len(word_T), x_MI.shape[1]).index_copy(0, there_M, x_MI)


def _children(made: Forest) -> list[list[int]]:
    return [[child for child in row if child >= 0] for row in made.children_NK.tolist()]


def _heights(children: list[list[int]]) -> Floats:
    """Of each node, edges to its deepest leaf."""
    height = np.zeros(len(children))
    roots = set(range(len(children))) - {child for row in children for child in row}
    for node in order(forest(children, sorted(roots))):
        height[node] = max((height[child] + 1 for child in children[node]), default=0.0)
    return height


def _below(made: Forest) -> tuple[Floats, Callable[[int], Any]]:
    """Edges from the root to each node; and which nodes are below one, itself among them."""
    children = _children(made)
    depth = np.zeros(len(children))
    for node in reversed(order(made)):  # parents first
        for child in children[node]:
            depth[child] = depth[node] + 1

    def inside(node: int) -> Any:
        found, waiting = np.zeros(len(children), dtype=bool), [node]
        while waiting:
            one = waiting.pop()
            found[one] = True
            waiting += children[one]
        return found

    return depth, inside
