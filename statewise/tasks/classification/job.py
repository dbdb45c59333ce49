"""Many to one: a whole sequence, one class.

B batch, K classes.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from statewise.core import onto
from statewise.data import ExampleWriter, RaggedBatches, evaluation_batches, left_out_note
from statewise.data import Labels as Classes
from statewise.models import AnyClassifier, build_classifier, measured, row_flops
from statewise.specs import ClassificationSpec
from statewise.tasks.classification.examples import (
    Batch,
    Encoding,
    Labels,
    Rows,
    encode,
    learn_encoding,
    load_encoding,
)
from statewise.tasks.classification.reading import read_split, store_rows
from statewise.tasks.job import Job, Opening, Trivial, some_rows
from statewise.tasks.loss import categorical_loss
from statewise.tasks.metric import directions
from statewise.tasks.stored import as_stored
from statewise.training import Better, Parallel, Payload, Window

_EVALUATION_TOKENS = 1 << 14


class _Content(NamedTuple):
    batch: Batch
    label_B: Tensor


@final
class ClassificationJob(Job):
    question = ("train", "validation", "text", "held_out", "embedded", "distance")
    tokens = ("tokenizer", "vocab", "lower", "min_count")

    spec: ClassificationSpec

    def __init__(
        self, spec: ClassificationSpec, train: Labels, held: Labels, encoding: Encoding, classes: Classes, par: Parallel
    ) -> None:
        self.spec, self.classes, self.encoding, self._par = spec, classes, encoding, par
        self._left_out = left_out_note(train.left_out)
        self.sha256 = train.sha256
        self.train_rows, self.held_rows = encode(encoding, train), encode(encoding, held)
        self._lengths = self.train_rows.lengths
        self._train_label_N = classes.encode(train.labels, where=train.where).ids_N
        # A label that training never showed cannot be predicted: such rows count, and count as wrong.
        self.held_label_N, self.unseen = classes.encode(held.labels, where=held.where, unseen="wrong")
        classes.refuse_all_new(held.labels, where=held.where[0])
        self._weight_K = torch.ones(len(classes), dtype=torch.float64)
        if spec.objective.weights == "balanced":
            self._weight_K = torch.from_numpy(classes.weights())
        self._weight_there_K = self._weight_K.to(par.device)
        self._batches = RaggedBatches(
            self._lengths, batch=spec.train.batch, seed=spec.seed, rank=par.rank, world=par.world
        )

    @classmethod
    def open(cls, spec: ClassificationSpec, opening: Opening) -> "ClassificationJob":
        spec = as_stored(spec)
        train, held = read_split(spec.data, seed=spec.seed)
        if opening.kept is None:
            encoding, classes = learn_encoding(spec, train), Classes.of(train.labels)
        else:
            encoding = load_encoding(spec.data, opening.kept)
            classes = Classes.from_json((opening.kept / "labels.json").read_text(encoding="utf-8"))
        return cls(spec, train, held, encoding, classes, opening.par).of_checkpoint(opening.kept)

    @classmethod
    def store(cls, spec: ClassificationSpec, writer: ExampleWriter) -> None:
        store_rows(spec, writer)

    @property
    def judges(self) -> Mapping[str, Better]:
        return directions("accuracy", "nats")

    def build(self) -> AnyClassifier:
        return build_classifier(
            self.spec.model,
            self.spec.reader,
            num_classes=len(self.classes),
            seed=self.spec.seed,
            **self.encoding.model_input(),
        )

    def flops_per_token(self) -> float:
        lengths = [int(self._lengths[i]) for i in some_rows(len(self._lengths))]
        flops = measured(self.build, row_flops)
        return sum(flops(length) for length in lengths) / sum(lengths)

    def identity(self) -> dict[str, Payload]:
        return {"labels.json": self.classes.to_json(), "data.sha256": self.sha256, **self.encoding.files()}

    def headline(self) -> str:
        size = sum(p.numel() for p in self.build().parameters())
        name = (
            ", ".join(self.spec.data.train)
            or f"the embedded {self.spec.data.embedded if self.spec.data.kind == 'text' else 'digits'}"
        )
        cut = f", {self.train_rows.cut:,} cut to {self.spec.data.longest}" if self.train_rows.cut else ""
        cut += self._left_out
        return (
            f"{self.spec.model.known_as}, {size:,} parameters, on {name} ({len(self.train_rows):,} rows{cut}, "
            f"{len(self.classes)} classes, {len(self.held_rows):,} held out)"
        )

    def facts(self) -> dict[str, Any]:
        return {"data": {"rows": len(self.train_rows), "held_out": len(self.held_rows), "sha256": self.sha256}}

    def trivial(self) -> Trivial:
        most = int(np.bincount(self._train_label_N, minlength=1).argmax())
        reached = float((self.held_label_N == most).mean())
        return Trivial(f"always {self.classes.names[most]!r}", "accuracy", reached)

    def window(self, step: int) -> Window:
        mine, everyone = self._batches.at(step), self._batches.all_at(step)
        device = self._par.device
        content = _Content(
            self.train_rows.batch(mine).to(device), onto(device, torch.from_numpy(self._train_label_N[mine]))
        )
        weight = self._batches.divisor(step, float(self._weight_K[self._train_label_N[everyone]].sum()))
        tokens = int(self._lengths[everyone].sum())
        return Window(len(mine), 1, True, content, weight=weight, tokens=tokens)

    def loss(self, model: Any, window: Window, some: slice, times: slice, state: Any) -> tuple[Tensor, Any]:
        batch, label_B = window.content
        logits_BK = model(batch.source[some], batch.size_B[some])
        loss = categorical_loss(
            logits_BK, label_B[some], class_weight_K=self._weight_there_K, smoothing=self.spec.objective.smoothing
        )
        return loss.total, state

    def evaluate(self, model: Any, poll: Callable[[], None]) -> dict[str, float]:
        log_NK = log_probabilities(model, self.held_rows, device=self._par.device, poll=poll)
        right_N = log_NK.argmax(-1) == self.held_label_N
        seen_N = self.held_label_N >= 0
        nats = -log_NK[seen_N, self.held_label_N[seen_N]].mean()
        return {"accuracy": float(right_N.mean()), "nats": float(nats)}


@torch.no_grad()
def log_probabilities(
    model: AnyClassifier, rows: Rows, *, device: torch.device, poll: Callable[[], None] = lambda: None
) -> NDArray[np.float64]:
    """Of each class, for each row; rows are read in order of length and given back in theirs."""
    log_NK: NDArray[np.float64] | None = None
    length_N = rows.lengths
    longest = int(length_N.max(initial=1))
    for index in evaluation_batches(length_N, batch=max(1, _EVALUATION_TOKENS // longest)):
        poll()
        batch = rows.batch(index).to(device)
        log_BK = model(batch.source, batch.size_B).double().log_softmax(-1).cpu().numpy()
        if log_NK is None:
            log_NK = np.empty((len(rows), log_BK.shape[1]))
        log_NK[index] = log_BK
    assert log_NK is not None
    return log_NK
