"""Many to many, unaligned: a whole source is read, then a target is written until its end.

B batch, T target time, V vocabulary.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, final

from torch import Tensor

from statewise.core import Machine
from statewise.data import ExampleWriter, RaggedBatches, left_out_note, lengths_of
from statewise.models import measured, pair_flops
from statewise.specs import AnyRunSpec, TeacherForcing, TranslationSpec
from statewise.tasks.job import Job, Opening, some_rows
from statewise.tasks.metric import directions
from statewise.tasks.metric.translation import quick_scores
from statewise.tasks.stored import as_stored
from statewise.tasks.translation.examples import (
    Batch,
    Languages,
    Pairs,
    learnable,
    most_frequent,
)
from statewise.tasks.translation.reading import read_split, store_pairs
from statewise.tasks.translation.sides import mean_series, series_errors
from statewise.tasks.translation.write import Writer, make_translator, told
from statewise.training import Better, Parallel, Payload, Window


class _Content(NamedTuple):
    batch: Batch
    step: int
    first_row: int  # of this rank, among the rows of all


@final
class TranslationJob(Job):
    question = (
        *("train", "target", "validation", "validation_target", "held_out", "language"),
        *("source_kind", "target_kind"),
    )
    tokens = ("tokenizer", "vocab", "lower", "min_count", "target_tokenizer", "target_vocab", "levels")

    spec: TranslationSpec

    def __init__(self, spec: TranslationSpec, train: Pairs, held: Pairs, languages: Languages, par: Parallel) -> None:
        self.spec, self.languages, self._par = spec, languages, par
        self.sha256 = train.sha256
        if train.encoded is not None:
            self._frequent = train.encoded.frequent
        else:
            self._frequent = most_frequent(train.targets) if languages.levels is None else mean_series(train.targets)
        self._left_out = left_out_note(train.left_out)
        self.train_rows, self.beyond = learnable(spec.data, languages, train)
        self.held_rows, self.held = languages.encode(held), held
        self._longest_learned = int(self.train_rows.whole.max())
        self.translator = make_translator(spec, languages, par.device, longest_learned=self._longest_learned)
        self._length_N, self._target_length_N = self.train_rows.lengths, lengths_of(self.train_rows.targets)
        self._batches = RaggedBatches(
            self._length_N, batch=spec.train.batch, seed=spec.seed, rank=par.rank, world=par.world
        )

    @classmethod
    def open(cls, spec: TranslationSpec, opening: Opening) -> "TranslationJob":
        spec = as_stored(spec)
        train, held = read_split(spec.data, seed=spec.seed)
        kept = opening.kept
        languages = Languages.learn(spec.data, train) if kept is None else Languages.load(spec.data, kept)
        return cls(spec, train, held, languages, opening.par).of_checkpoint(kept)

    @classmethod
    def store(cls, spec: TranslationSpec, writer: ExampleWriter) -> None:
        store_pairs(spec.data, writer, seed=spec.seed)

    @property
    def judges(self) -> Mapping[str, Better]:
        if self.languages.levels is not None:
            return directions("nats", "mse", "mae", "length_exact")
        return directions("nats", "bleu", "exact", "length_exact")

    @property
    def regular(self) -> bool:
        return isinstance(self.spec.forcing, TeacherForcing)

    def build(self) -> Machine[Any]:
        return self.translator.build()

    def for_spec(self, spec: AnyRunSpec) -> "TranslationJob":
        assert isinstance(spec, TranslationSpec)
        made = super().for_spec(spec)
        made.translator = make_translator(spec, self.languages, self._par.device, longest_learned=self._longest_learned)
        return made

    def flops_per_token(self) -> float:
        pairs = [
            (len(self.train_rows.sources[i]), len(self.train_rows.targets[i])) for i in some_rows(len(self.train_rows))
        ]
        flops = measured(self.build, pair_flops)
        return sum(flops(*pair) for pair in pairs) / sum(map(sum, pairs))

    def identity(self) -> dict[str, Payload]:
        frequent = json.dumps(self._frequent, ensure_ascii=False) + "\n"
        lengths = json.dumps({"longest": self._longest_learned}) + "\n"
        known: dict[str, Payload] = {"frequent.json": frequent, "lengths.json": lengths}
        return {"data.sha256": self.sha256, **known, **self.languages.files()}

    def headline(self) -> str:
        size = sum(p.numel() for p in self.build().parameters())
        data = self.spec.data
        embedded = "the embedded pairs" if data.language is None else "installed catalogs"
        name = ", ".join(data.train) or embedded
        done = {"cut": "cut", "leave-out": "left out", "refuse": ""}[self.spec.data.beyond]
        beyond = f", {self.beyond:,} longer than {self.spec.data.longest} {done}" if self.beyond else ""
        beyond += self._left_out
        ((what_is_read, size_of_source),) = self.languages.source.inputs().items()
        words = f"vocabulary {self.languages.target.vocab:,}"
        if data.source_kind != "text":
            what = "classes" if what_is_read == "source_vocab" else "numbers"
            words = f"{size_of_source:,} {what} in, {words}"
        elif not self.languages.shared:
            words = f"vocabularies {size_of_source:,} and {self.languages.target.vocab:,}"
        return (
            f"{self.spec.name}, {size:,} parameters, on {name} ({len(self.train_rows):,} pairs{beyond}, {words}, "
            f"{len(self.held_rows):,} held out)"
        )

    def facts(self) -> dict[str, Any]:
        return {
            "data": {
                "pairs": len(self.train_rows),
                "held_out": len(self.held_rows),
                "too_long": self.beyond,
                "sha256": self.sha256,
            }
        }

    def window(self, step: int) -> Window:
        mine, everyone = self._batches.at(step), self._batches.all_at(step)
        batch = self.translator.batch(self.train_rows, mine)
        written = int(self._target_length_N[everyone].sum())
        content = _Content(batch, step, self._batches.first_row(step))
        weight = self._batches.divisor(step, written)
        return Window(len(mine), 1, True, content, weight=weight, tokens=int(self._length_N[everyone].sum()))

    def loss(self, model: Any, window: Window, some: slice, times: slice, state: Any) -> tuple[Tensor, Any]:
        batch, step, first_row = window.content
        total = self.translator.loss(
            model,
            batch.chosen(some),
            forcing=self.spec.forcing,
            step=step,
            first_row=first_row + some.start,
            smoothing=self.spec.objective.smoothing,
        )
        return total, state

    def evaluate(self, model: Any, poll: Callable[[], None]) -> dict[str, float]:
        """Nats under teacher forcing; BLEU, exact matches and correct lengths of a few greedy translations."""
        rows = self.held_rows.first(self.spec.train.evaluate_tokens)
        figures = {"nats": told(self.translator, model, rows, poll=poll).nats_per_token}
        if watch := self.spec.decoding.watch:
            writer = Writer(self.translator, model, self.spec.decoding)
            best = writer.greedy(self.held_rows.sources[:watch], poll=poll)
            written, true = [writer.text(hypothesis) for hypothesis in best], self.held.targets[:watch]
            if self.languages.levels is not None:
                figures |= series_errors(written, true)
            else:
                parting = self.languages.parting(self.spec.data, true)
                figures |= quick_scores(written, true, parting=parting)
            as_long = [len(hypothesis.tokens) == true for hypothesis, true in zip(best, self.held_rows.whole.tolist())]
            figures |= {"length_exact": sum(as_long) / len(as_long)}
        return figures
