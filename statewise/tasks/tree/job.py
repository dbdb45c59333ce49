"""A tree, a class for every node of it.

N nodes of all trees together, B trees, M nodes of a batch, K classes.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from statewise.core import onto
from statewise.data import NO_LABEL, FlatTree, Labels, RaggedBatches, Tokenizer, evaluation_batches, gc_disabled
from statewise.models import NodeClassifier, build_node_classifier, measured, row_flops
from statewise.specs import TreeSpec
from statewise.tasks.folder import fingerprint
from statewise.tasks.job import Job, Opening
from statewise.tasks.metric import directions
from statewise.tasks.tree.examples import Index, Read, Trees, read_split, refuse_wide
from statewise.training import Better, Parallel, Payload, Window

_EVALUATION_NODES = 1 << 14


@final
class TreeJob(Job):
    question = ("train", "validation", "held_out", "embedded")
    tokens = ("vocab", "lower", "min_count")

    spec: TreeSpec

    def __init__(
        self, spec: TreeSpec, train: Read, held: Read, *, tokenizer: Tokenizer, classes: Labels, par: Parallel
    ) -> None:
        self.spec, self.tokenizer, self.classes, self._par = spec, tokenizer, classes, par
        self.sha256 = fingerprint(map(str, train.trees))
        self.dropped = train.dropped
        for part in (train, held):
            refuse_wide(spec, part)
        self.root_counts = Counter(tree.root_label for tree in train.trees if tree.root_label is not None)
        classes.refuse_all_new(
            [label for tree in held.trees for label in _learned(tree, spec.objective.nodes)], where=held.where[0]
        )
        self.held = make_trees(spec, held, tokenizer, classes)
        every = make_trees(spec, train, tokenizer, classes)
        target_N = counted(every, roots_only=spec.objective.nodes == "root")
        weight_N = (target_N != NO_LABEL).astype(np.float64)
        weight_N[every.first_B] *= spec.objective.root_weight
        self._weight_K = classes.weights() if spec.objective.weights == "balanced" else np.ones(len(classes))
        self.train, self._target_N, self._weight_N = every, target_N, weight_N
        self._tree_weight_B = np.add.reduceat(weight_N * self._weight_K[target_N.clip(min=0)], every.first_B)
        # A tree without anything to learn would be a step without a loss.
        self._learned_B = np.flatnonzero(self._tree_weight_B > 0)
        self._batches = RaggedBatches(
            every.costs_B[self._learned_B], batch=spec.train.batch, seed=spec.seed, rank=par.rank, world=par.world
        )

    @classmethod
    @gc_disabled()
    def open(cls, spec: TreeSpec, opening: Opening) -> "TreeJob":
        train, held = read_split(spec.read_data, seed=spec.seed)
        if opening.kept is None:
            data = spec.data
            words = [word for tree in train.trees for word in tree.sentence()]
            tokenizer = Tokenizer.train("whole", words, vocab=data.vocab, lower=data.lower, min_count=data.min_count)
            classes = Labels.of(label for tree in train.trees for label in _learned(tree, spec.objective.nodes))
        else:
            tokenizer = Tokenizer.load(opening.kept / "tokenizer.json")
            classes = Labels.from_json((opening.kept / "labels.json").read_text(encoding="utf-8"))
        return cls(spec, train, held, tokenizer=tokenizer, classes=classes, par=opening.par).of_checkpoint(opening.kept)

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
        length_M = self.train.span_lengths(self._target_N != NO_LABEL)
        spans, span = (len(length_M) / trees, float(length_M.mean())) if len(length_M) else (0.0, 1.0)
        flops = measured(self.build, row_flops)
        row = flops(nodes / trees) if self.spec.follows_trees else spans * flops(span)
        return row * trees / nodes

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
        wanted_N = self._target_N != NO_LABEL
        for batch in self.train.batches(window.content[some], wanted_N=wanted_N, device=device):
            logits_MK = model(*batch.inputs).float()
            target_M = onto(device, torch.from_numpy(self._target_N[batch.node_M]))
            weight_M = onto(device, torch.from_numpy(self._weight_N[batch.node_M]).float())
            loss_M = F.cross_entropy(
                logits_MK, target_M, weight=weight_K, label_smoothing=smoothing, ignore_index=NO_LABEL, reduction="none"
            )
            total = total + (loss_M * weight_M).sum()
        return total, state

    def evaluate(self, model: Any, poll: Callable[[], None]) -> dict[str, float]:
        roots_only = self.spec.objective.nodes == "root"
        label_N = counted(self.held, roots_only=roots_only)
        log_NK = log_probabilities(model, self.held, wanted_N=label_N != NO_LABEL, device=self._par.device, poll=poll)
        rooted_B = self._held_roots()
        roots = self.held.first_B[rooted_B]
        judged = roots if len(roots) else np.flatnonzero(label_N != NO_LABEL)
        figures = {"root_accuracy": accuracy(log_NK, label_N, roots)} if len(roots) else {}
        if not roots_only:
            figures["node_accuracy"] = accuracy(log_NK, label_N, np.flatnonzero(label_N != NO_LABEL))
        return {**figures, "nats": nats(log_NK, label_N, judged)}


def make_trees(spec: TreeSpec, read: Read, tokenizer: Tokenizer, classes: Labels) -> Trees:
    return Trees(read.trees, tokenizer=tokenizer, classes=classes, spans=not spec.follows_trees)


def counted(trees: Trees, *, roots_only: bool) -> Index:
    """The label of every node that counts."""
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
        for batch in trees.batches(index, wanted_N=wanted_N, device=device):
            poll()
            log_MK = model(*batch.inputs).double().log_softmax(-1).cpu().numpy()
            if log_NK is None:
                log_NK = np.full((len(trees.label_N), log_MK.shape[1]), np.nan)
            log_NK[batch.node_M] = log_MK
    assert log_NK is not None
    return log_NK


def _learned(tree: FlatTree, nodes: str) -> list[str]:
    labels = tree.labels[:1] if nodes == "root" else tree.labels
    return [label for label in labels if label is not None]
