"""A tree, a class for every node of it.

N nodes of all trees together, B trees, M nodes of a batch, K classes.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from statewise.core import onto
from statewise.data import (
    NO_LABEL,
    ExampleWriter,
    Labels,
    RaggedBatches,
    Tokenizer,
    evaluation_batches,
    gc_disabled,
    names_examples,
)
from statewise.models import NodeClassifier, build_node_classifier, measured, row_flops
from statewise.specs import TreeSpec
from statewise.tasks.folder import fingerprint
from statewise.tasks.job import Job, Opening, some_rows
from statewise.tasks.metric import directions
from statewise.tasks.stored import as_stored
from statewise.tasks.tree.examples import (
    Index,
    Learned,
    Read,
    Trees,
    flattened,
    learn,
    learned_labels,
    load_vocabularies,
    read_split,
    refuse_wide,
    roots_of,
)
from statewise.tasks.tree.stored import open_stored, store_trees
from statewise.training import Better, Parallel, Payload, Window

_EVALUATION_NODES = 1 << 14
_TREES_AT_ONCE = 1 << 8  # whose weights are summed


@final
class TreeJob(Job):
    question = ("train", "validation", "held_out", "embedded")
    tokens = ("vocab", "lower", "min_count")

    spec: TreeSpec

    def __init__(
        self, spec: TreeSpec, train: Learned, held: Read, *, tokenizer: Tokenizer, classes: Labels, par: Parallel
    ) -> None:
        self.spec, self.tokenizer, self.classes, self._par = spec, tokenizer, classes, par
        self.train, self.sha256, self.root_counts, self.dropped = train.trees, train.sha256, train.roots, train.dropped
        refuse_wide(spec, held)
        classes.refuse_all_new(
            [label for tree in held.trees for label in learned_labels(tree, spec.objective.nodes)], where=held.where[0]
        )
        self.held = make_trees(spec, held, tokenizer, classes)
        self._weight_K = classes.weights() if spec.objective.weights == "balanced" else np.ones(len(classes))
        self._tree_weight_B = self._tree_weights()
        # A tree without anything to learn would be a step without a loss.
        self._learned_B = np.flatnonzero(self._tree_weight_B > 0)
        self._batches = RaggedBatches(
            self.train.costs_B[self._learned_B], batch=spec.train.batch, seed=spec.seed, rank=par.rank, world=par.world
        )

    @classmethod
    @gc_disabled()
    def open(cls, spec: TreeSpec, opening: Opening) -> "TreeJob":
        spec = as_stored(spec)
        kept = opening.kept
        if names_examples(spec.data.train):
            learned, held, tokenizer, classes = open_stored(spec)
            return cls(spec, learned, held, tokenizer=tokenizer, classes=classes, par=opening.par).of_checkpoint(kept)
        train, held = read_split(spec.read_data, seed=spec.seed)
        refuse_wide(spec, train)
        if kept is None:
            words = (word for tree in train.trees for word in tree.sentence())
            labels = (label for tree in train.trees for label in learned_labels(tree, spec.objective.nodes))
            tokenizer, classes = learn(spec, words, labels)
        else:
            tokenizer, classes = load_vocabularies(kept)
        trees, sha256 = make_trees(spec, train, tokenizer, classes), fingerprint(map(str, train.trees))
        learned = Learned(trees, sha256, roots_of(train.trees), train.dropped)
        return cls(spec, learned, held, tokenizer=tokenizer, classes=classes, par=opening.par).of_checkpoint(kept)

    @classmethod
    @gc_disabled()
    def store(cls, spec: TreeSpec, writer: ExampleWriter) -> None:
        store_trees(spec, writer)

    @property
    def judges(self) -> Mapping[str, Better]:
        roots = ("root_accuracy",) if self._held_roots().any() else ()
        nodes = ("node_accuracy",) if self.spec.objective.nodes == "all" else ()
        return directions(*roots, *nodes, "nats")

    def _held_roots(self) -> NDArray[np.bool_]:
        there: NDArray[np.bool_] = self.held.label_N[self.held.first_B] != NO_LABEL
        return there

    @property
    def regular(self) -> bool:
        """A tree is read node by node, or depth by depth."""
        return False

    def build(self) -> NodeClassifier:
        return build_node_classifier(
            self.spec.model,
            self.spec.reader,
            num_classes=len(self.classes),
            vocab=self.tokenizer.vocab,
            seed=self.spec.seed,
        )

    def flops_per_token(self) -> float:
        """A node counts as a token. Where spans are read, those of the nodes whose labels are learned."""
        nodes, trees = float(self.train.size_B.sum()), len(self.train)
        flops = measured(self.build, row_flops)
        if self.spec.follows_trees:
            return flops(nodes / trees) * trees / nodes
        asked = np.arange(trees) if isinstance(self.train.label_N, np.ndarray) else some_rows(trees)
        node_M = self.train.nodes(asked)
        length_M = self.train.span_lengths(node_M[self._wanted(node_M)])
        spans, span = (len(length_M) / len(asked), float(length_M.mean())) if len(length_M) else (0.0, 1.0)
        return spans * flops(span) * trees / nodes

    def identity(self) -> dict[str, Payload]:
        roots = Labels(self.classes.names, [self.root_counts[name] for name in self.classes.names])
        return {
            "labels.json": self.classes.to_json(),
            "roots.json": roots.to_json(),
            "tokenizer.json": self.tokenizer.to_json(),
            "data.sha256": self.sha256,
        }

    def headline(self) -> str:
        size = sum(p.numel() for p in self.build().parameters())
        name = ", ".join(self.spec.data.train) or f"the embedded {self.spec.data.embedded}"
        dropped = f", {self.dropped:,} left out for their root" if self.dropped else ""
        return (
            f"{self.spec.model.known_as}, {size:,} parameters, on {name} ({len(self.train):,} trees{dropped}, "
            f"{self.train.size_B.sum():,} nodes, {len(self.held):,} trees held out, {len(self.classes)} classes"
            f"{self._not_renamed()})"
        )

    def _not_renamed(self) -> str:
        """Classes that `data.labels` does not name, where it renames others."""
        named = self.spec.data.labels
        kept = [name for name in self.classes.names if name not in named.values()] if named else []
        more = ", …" if len(kept) > 8 else ""
        return f"; not named by data.labels: {', '.join(kept[:8])}{more}" if kept else ""

    def facts(self) -> dict[str, Any]:
        return {
            "data": {
                "trees": len(self.train),
                "nodes": int(self.train.size_B.sum()),
                "held_out": len(self.held),
                "sha256": self.sha256,
            }
        }

    def window(self, step: int) -> Window:
        mine, everyone = (self._learned_B[some] for some in (self._batches.at(step), self._batches.all_at(step)))
        weight = self._batches.divisor(step, float(self._tree_weight_B[everyone].sum()))
        return Window(len(mine), 1, True, mine, weight=weight, tokens=int(self.train.size_B[everyone].sum()))

    def loss(self, model: Any, window: Window, some: slice, times: slice, state: Any) -> tuple[Tensor, Any]:
        """Each node's cross-entropy, times what the node counts."""
        device, total = self._par.device, torch.zeros((), device=self._par.device)
        smoothing = self.spec.objective.smoothing
        weight_K = onto(device, torch.from_numpy(self._weight_K).float())
        for batch in self.train.batches(window.content[some], wanted=self._wanted, device=device):
            logits_MK = model(*batch.inputs).float()
            targets = self._targets(batch.node_M)
            target_M = onto(device, torch.from_numpy(targets))
            weight_M = onto(device, torch.from_numpy(self._weights(batch.node_M, targets)).float())
            loss_M = F.cross_entropy(
                logits_MK, target_M, weight=weight_K, label_smoothing=smoothing, ignore_index=NO_LABEL, reduction="none"
            )
            total = total + (loss_M * weight_M).sum()
        return total, state

    def _targets(self, node_M: Index) -> Index:
        """The labels of training nodes that count."""
        label_M = self.train.label_N[node_M]
        return np.where(self.train.is_root(node_M), label_M, NO_LABEL) if self._roots_only else label_M

    def _wanted(self, node_M: Index) -> NDArray[np.bool_]:
        wanted_M: NDArray[np.bool_] = self._targets(node_M) != NO_LABEL
        return wanted_M

    def _weights(self, node_M: Index, target_M: Index) -> NDArray[np.float64]:
        """What each node counts."""
        weight_M: NDArray[np.float64] = (target_M != NO_LABEL).astype(np.float64)
        weight_M[self.train.is_root(node_M)] *= self.spec.objective.root_weight
        return weight_M

    def _tree_weights(self) -> NDArray[np.float64]:
        """The sum over the nodes of each tree, those of its class included."""
        sums = []
        for begin in range(0, len(self.train), _TREES_AT_ONCE):
            tree_B = np.arange(begin, min(begin + _TREES_AT_ONCE, len(self.train)))
            node_M, size_B = self.train.nodes(tree_B), self.train.size_B[tree_B]
            target_M = self._targets(node_M)
            weight_M = self._weights(node_M, target_M) * self._weight_K[target_M.clip(min=0)]
            sums.append(np.add.reduceat(weight_M, np.cumsum(size_B) - size_B))
        tree_weight_B: NDArray[np.float64] = np.concatenate(sums)
        return tree_weight_B

    @property
    def _roots_only(self) -> bool:
        return self.spec.objective.nodes == "root"

    def evaluate(self, model: Any, poll: Callable[[], None]) -> dict[str, float]:
        label_N = counted(self.held, roots_only=self._roots_only)
        log_NK = log_probabilities(model, self.held, wanted_N=label_N != NO_LABEL, device=self._par.device, poll=poll)
        rooted_B = self._held_roots()
        roots = self.held.first_B[rooted_B]
        judged = roots if len(roots) else np.flatnonzero(label_N != NO_LABEL)
        figures = {"root_accuracy": accuracy(log_NK, label_N, roots)} if len(roots) else {}
        if not self._roots_only:
            figures["node_accuracy"] = accuracy(log_NK, label_N, np.flatnonzero(label_N != NO_LABEL))
        return {**figures, "nats": nats(log_NK, label_N, judged)}


def held_out(spec: TreeSpec) -> Read:
    """What training did not learn from."""
    if names_examples(spec.data.train):
        return open_stored(spec)[1]
    return read_split(spec.read_data, seed=spec.seed)[1]


def make_trees(spec: TreeSpec, read: Read, tokenizer: Tokenizer, classes: Labels) -> Trees:
    spans = not spec.follows_trees
    return Trees(flattened(read.trees, tokenizer=tokenizer, classes=classes, spans=spans), spans=spans)


def counted(trees: Trees, *, roots_only: bool) -> Index:
    """The label of every node that counts, in memory."""
    assert isinstance(trees.label_N, np.ndarray)
    if not roots_only:
        return trees.label_N
    label_N = np.full_like(trees.label_N, NO_LABEL)
    label_N[trees.first_B] = trees.label_N[trees.first_B]
    return label_N


def accuracy(log_NK: NDArray[np.float64], label_N: Index, node_M: Index) -> float:
    return float((log_NK[node_M].argmax(-1) == label_N[node_M]).mean())


def nats(log_NK: NDArray[np.float64], label_N: Index, node_M: Index) -> float:
    """Mean surprise; a label that training never showed has none, and where all are such, nothing has."""
    known_M = node_M[label_N[node_M] >= 0]
    return float(-log_NK[known_M, label_N[known_M]].mean()) if len(known_M) else math.nan


@torch.no_grad()
def log_probabilities(
    model: NodeClassifier,
    trees: Trees,
    *,
    wanted_N: NDArray[np.bool_],
    device: torch.device,
    poll: Callable[[], None] = lambda: None,
) -> NDArray[np.float64]:
    """Of each class, at the nodes that are wanted (and, where whole trees are read, at the others too)."""
    log_NK: NDArray[np.float64] | None = None
    rows = max(1, _EVALUATION_NODES // int(trees.size_B.max(initial=1)))
    for index in evaluation_batches(trees.costs_B, batch=rows):
        for batch in trees.batches(index, wanted=wanted_N.__getitem__, device=device):
            poll()
            log_MK = model(*batch.inputs).double().log_softmax(-1).cpu().numpy()
            if log_NK is None:
                log_NK = np.full((len(wanted_N), log_MK.shape[1]), np.nan)
            log_NK[batch.node_M] = log_MK
    assert log_NK is not None
    return log_NK
