"""Many to many, aligned: a sentence, a tag for each of its words.

N words, P parts of sentences, B of them in a batch, T time, K tags.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple, TypeVar, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from statewise.core import onto
from statewise.data import (
    UNSEEN,
    Coded,
    ExampleWriter,
    Labels,
    RaggedBatches,
    Tagged,
    Where,
    evaluation_batches,
    names_examples,
)
from statewise.models import Tagger, build_tagger, is_constrained, measured, row_flops, spelling_flops
from statewise.specs import CategoricalSpec, TaggingSpec, UserError
from statewise.tasks.folder import refuse_other_data
from statewise.tasks.job import Job, Opening, Trivial, some_rows
from statewise.tasks.metric import directions, span
from statewise.tasks.stored import as_stored
from statewise.tasks.tagging.examples import (
    Batch,
    Index,
    Known,
    Sentences,
    broken_span,
    in_parts,
    read_split,
    sentences_sha256,
    tags_of,
)
from statewise.tasks.tagging.stored import Learned, open_stored, store_sentences
from statewise.training import Better, Parallel, Payload, Window

E = TypeVar("E")

_EVALUATION_WORDS = 1 << 15  # in a batch
_PARTS = 1 << 12  # whose weights are summed at a time
_BATCHES_ASKED = 8  # for how many different words they hold
_LEAST = 1e-12  # a probability of 0, which a constraint can give, would make the mean of nats infinite


class _Content(NamedTuple):
    batch: Batch
    tags_BT: Tensor


@final
class TaggingJob(Job):
    question = ("train", "validation", "held_out")

    spec: TaggingSpec

    def __init__(
        self, spec: TaggingSpec, train: Sequence[Tagged] | Learned, held: Sequence[Tagged], known: Known, par: Parallel
    ) -> None:
        self.spec, self.known, self._par, self._held = spec, known, par, held
        if isinstance(train, Learned):
            self.sha256, self._sentences = train.sha256, len(train.sentences)
            self.train_rows: Sentences = train.rows(spec.data.longest)
            self._tag_N: Index | Coded = train.tags()
        else:
            self.sha256, self._sentences = sentences_sha256(train), len(train)
            self.train_rows = encode(spec, known, train)
            self._tag_N = known.tags.encode(list(tags_of(train)), where=_places(train)).ids_N
        self.held_rows, held_tags = encode(spec, known, held), list(tags_of(held))
        # A tag that training never showed cannot be predicted: such words count, and count as wrong.
        self._held_tag_N = known.tags.encode(held_tags, unseen="wrong").ids_N
        known.tags.refuse_all_new(held_tags, where=held[0].where)
        self._begins_K = np.arange(len(known.tags))  # the tag of a part's first word, by its tag in the sentence
        if is_constrained(spec.objective, known.tags.names):
            if broken := train.broken if isinstance(train, Learned) else broken_span(train):
                raise UserError(
                    broken, fix="set data.scheme = iob2 to begin spans with B-, or objective.constraint = none"
                )
            self._begins_K = _begins(known.tags)
        self._weight_K = _tag_weights(spec, known)
        self._weight_P = self._weights()
        self._batches = RaggedBatches(
            self.train_rows.length_P, batch=spec.train.batch, seed=spec.seed, rank=par.rank, world=par.world
        )
        self._spans = span.marks_spans([*known.tags.names, *held_tags])

    @classmethod
    def open(cls, spec: TaggingSpec, opening: Opening) -> "TaggingJob":
        spec = as_stored(spec)
        train: Sequence[Tagged] | Learned
        if names_examples(spec.data.train):
            train, held = open_stored(spec)
            known = train.known
        else:
            train, held = read_split(spec.data, seed=spec.seed)
            known = Known.learn(spec.words, train) if opening.kept is None else Known.load(spec.words, opening.kept)
            if opening.kept is not None:  # before its words and tags are looked up
                refuse_other_data(opening.kept, sentences_sha256(train))
        return cls(spec, train, held, known, opening.par).of_checkpoint(opening.kept)

    @classmethod
    def store(cls, spec: TaggingSpec, writer: ExampleWriter) -> None:
        store_sentences(spec, writer)

    @property
    def judges(self) -> Mapping[str, Better]:
        return directions(*(("span_f1",) if self._spans else ()), "accuracy", "nats")

    def build(self) -> Tagger:
        return build(self.spec, self.known, weight_K=torch.from_numpy(self._weight_K).float())

    def flops_per_token(self) -> float:
        """A word that stands in a batch twice is spelled once, so some batches are looked at."""
        windows = [self.window(step) for step in range(_BATCHES_ASKED)]
        words = sum(window.tokens for window in windows)
        spelled = [length_U for window in windows for length_U in window.content.batch.words.length_U.tolist()]
        lengths = [int(self.train_rows.length_P[i]) for i in some_rows(len(self.train_rows.length_P))]
        flops = measured(self.build, row_flops)
        rows = sum(flops(length) for length in lengths)
        each = measured(self.build, spelling_flops)(fmean(spelled)) if spelled else 0.0
        return rows / sum(lengths) + each * len(spelled) / words

    def identity(self) -> dict[str, Payload]:
        return {**self.known.files(), "data.sha256": self.sha256}

    def headline(self) -> str:
        size = sum(p.numel() for p in self.build().parameters())
        name = ", ".join(self.spec.data.train) or "the embedded source code"
        more = len(self.train_rows) - self._sentences
        parts = f" in {len(self.train_rows):,} parts of at most {self.spec.data.longest} words" if more else ""
        return (
            f"{self.spec.model.known_as}, {size:,} parameters, on {name} ({self._sentences:,} sentences{parts}, "
            f"{self._words:,} words, {len(self.known.tags)} tags, {len(self._held):,} sentences held out)"
        )

    def facts(self) -> dict[str, Any]:
        return {
            "data": {
                "sentences": self._sentences,
                "words": self._words,
                "held_out": len(self._held),
                "sha256": self.sha256,
            }
        }

    def trivial(self) -> Trivial:
        most = int(np.argmax(self.known.tags.counts))
        reached = float((self._held_tag_N == most).mean())
        return Trivial(f"always {self.known.tags.names[most]!r}", "accuracy", reached)

    def window(self, step: int) -> Window:
        mine, everyone = self._batches.at(step), self._batches.all_at(step)
        place_BT, inside_BT = self.train_rows.places(mine)
        tag_BT = np.where(inside_BT, self._tag_N[place_BT], 0)
        tag_BT[:, 0] = self._begins_K[tag_BT[:, 0]]
        tags_BT = torch.from_numpy(tag_BT)
        device = self._par.device
        content = _Content(self.train_rows.batch(mine).to(device), onto(device, tags_BT))
        weight = self._batches.divisor(step, float(self._weight_P[everyone].sum()))
        tokens = int(self.train_rows.length_P[everyone].sum())
        return Window(len(mine), 1, True, content, weight=weight, tokens=tokens)

    def loss(self, model: Any, window: Window, some: slice, times: slice, state: Any) -> tuple[Tensor, Any]:
        batch, tags_BT = window.content
        return model.loss(batch.words.rows(some), batch.lengths_B[some], tags_BT[some]), state

    def evaluate(self, model: Any, poll: Callable[[], None]) -> dict[str, float]:
        guessed = guess(model, self.held_rows, self._held_tag_N, device=self._par.device, poll=poll)
        figures = {"accuracy": float((guessed.best_N == self._held_tag_N).mean()), "nats": guessed.nats}
        if self._spans:
            names = by_sentence(self.known.tags.decode(guessed.best_N.tolist()), self._held)
            figures["span_f1"] = span.measure([sentence.tags for sentence in self._held], names).f1
        return figures

    @property
    def _words(self) -> int:
        return int(self.train_rows.length_P.sum())

    def _weights(self) -> NDArray[np.float64]:
        """What each part counts: the sum over its words."""
        rows, every_P = self.train_rows, []
        for begin in range(0, len(rows), _PARTS):
            length_P = rows.length_P[begin : begin + _PARTS]
            first_P = np.cumsum(length_P) - length_P
            place_N = np.repeat(rows.begin_P[begin : begin + _PARTS] - first_P, length_P) + np.arange(length_P.sum())
            every_P.append(np.add.reduceat(self._weight_K[self._tag_N[place_N]], first_P))
        return np.concatenate(every_P)


def _begins(tags: Labels) -> Index:
    """A part that begins in the midst of a span begins a span: nothing stands before it."""
    return np.array([tags.find(f"B{name[1:]}" if name[0] == "I" else name) for name in tags.names], dtype=np.int64)


def encode(spec: TaggingSpec, known: Known, sentences: Sequence[Tagged]) -> Sentences:
    return known.encoding.encode(
        sentences, in_parts([len(sentence.words) for sentence in sentences], spec.data.longest)
    )


def held_out(spec: TaggingSpec) -> list[Tagged]:
    """What training did not learn from."""
    return (open_stored(spec) if names_examples(spec.data.train) else read_split(spec.data, seed=spec.seed))[1]


def build(spec: TaggingSpec, known: Known, *, weight_K: Tensor | None = None) -> Tagger:
    return build_tagger(
        spec.model,
        spec.reader,
        spec.words,
        spec.objective,
        names=known.tags.names,
        vocab=known.encoding.words.vocab,
        unknown_id=known.encoding.unknown_id,
        num_characters=known.encoding.characters.vocab,
        weight_K=weight_K,
        seed=spec.seed,
    )


class Guess(NamedTuple):
    """`nats` is the mean, over words whose tag is known, of -log of the tag's probability."""

    best_N: NDArray[np.int64]
    p_N: NDArray[np.float64]
    nats: float


@torch.no_grad()
def guess(
    model: Tagger,
    rows: Sentences,
    tag_N: NDArray[np.int64] | None = None,
    *,
    device: torch.device,
    poll: Callable[[], None] = lambda: None,
) -> Guess:
    """The best tag of every word, in the order of the sentences, and its probability."""
    best_N, p_N = np.empty(len(rows.form_N), dtype=np.int64), np.empty(len(rows.form_N))
    nats, count = 0.0, 0
    longest = int(rows.length_P.max(initial=1))
    for part_B in evaluation_batches(rows.length_P, batch=max(1, _EVALUATION_WORDS // longest)):
        poll()
        place_BT, inside_BT = rows.places(part_B)
        batch = rows.batch(part_B).to(device)
        best_BT, p_BTK = model(batch.words, batch.lengths_B)
        place_M = place_BT[inside_BT]
        best_N[place_M] = best_BT.cpu().numpy()[inside_BT]
        p_N[place_M] = _of(p_BTK, best_BT).cpu().numpy()[inside_BT]
        if tag_N is None:
            continue
        tag_BT = tag_N[place_BT]
        seen_BT = inside_BT & (tag_BT != UNSEEN)
        right_BT = _of(p_BTK, torch.from_numpy(np.where(seen_BT, tag_BT, 0)).to(device)).cpu().numpy()
        nats -= float(np.log(np.maximum(right_BT[seen_BT].astype(np.float64), _LEAST)).sum())
        count += int(seen_BT.sum())
    return Guess(best_N, p_N, nats / count if count else math.nan)


def by_sentence(line: Sequence[E], sentences: Sequence[Tagged]) -> list[Sequence[E]]:
    """What stands in one line, a thing for each word, cut as the sentences are."""
    ends = np.cumsum([len(sentence.words) for sentence in sentences]).tolist()
    return [line[end - len(sentence.words) : end] for end, sentence in zip(ends, sentences)]


def _of(p_BTK: Tensor, tags_BT: Tensor) -> Tensor:
    return p_BTK.gather(2, tags_BT[:, :, None]).squeeze(2)


def _tag_weights(spec: TaggingSpec, known: Known) -> NDArray[np.float64]:
    if isinstance(spec.objective, CategoricalSpec) and spec.objective.weights == "balanced":
        return known.tags.weights()
    return np.ones(len(known.tags))


def _places(sentences: Sequence[Tagged]) -> list[Where]:
    return [sentence.where for sentence in sentences for _ in sentence.words]
