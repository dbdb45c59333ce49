"""A trained tagger, opened."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, final

import torch
from torch import Tensor, nn

from statewise.core import Machine
from statewise.data import (
    Data,
    Layout,
    Tagged,
    Where,
    as_files,
    read_tagged,
    source_name,
    spooled,
    temporary_file,
    with_tags,
)
from statewise.decoding import Sampling
from statewise.models import ChainedTags, Tagger, WordEntry, Words, longest_context
from statewise.specs import TaggedDataSpec, TaggingSpec
from statewise.tasks.answers import MOST, Answer, Answers
from statewise.tasks.folder import Opened
from statewise.tasks.metric import span
from statewise.tasks.metric.label import label_scores
from statewise.tasks.portable import Axes, Portable, Whole, ragged_tokens
from statewise.tasks.report import Report, confusion_table, of_this_run, percent, shows_report, worse_than_trivial
from statewise.tasks.run import PredictingRun, named
from statewise.tasks.tagging.examples import Known, layout_at, read_sentences, tags_of, words_of
from statewise.tasks.tagging.job import build, by_sentence, encode, guess, held_out
from statewise.tasks.tagging.specimens import TaggingSpecimens

_AROUND = 6  # words on either side of one that an answer shows
_SENTENCES = 4096  # predicted at a time


@shows_report
class TaggingEvaluation(NamedTuple):
    """Figures over single words; a span is right when its kind and both its ends are."""

    accuracy: float
    new_word_accuracy: float | None  # on words that training never showed; None where there are none
    macro_f1: float
    span_f1: float | None  # None where tags do not mark spans
    nats: float
    sentences: int
    words: int
    new_words: int
    lexicon_accuracy: float  # of the most frequent tag of each word
    lexicon_new_word_accuracy: float | None
    lexicon_macro_f1: float
    lexicon_span_f1: float | None
    majority_accuracy: float
    majority_tag: str
    uniform_accuracy: float
    per_tag: dict[str, dict[str, float]]
    confusion: list[list[int]]
    tags: list[str]  # the order of `confusion`: a row for each true tag, a column for each prediction
    unseen_tags: dict[str, int]  # that training never showed; their words count as wrong

    def report(self, name: str) -> Report:
        columns = ("accuracy", "on new words", "macro F1", *(() if self.span_f1 is None else ("span F1",)))
        rows = (
            ("perfect", *_row(1.0, 1.0, 1.0, 1.0)[: len(columns)]),
            (name, *_row(self.accuracy, self.new_word_accuracy, self.macro_f1, self.span_f1)[: len(columns)]),
            (
                "most frequent tag of the word",
                *_row(
                    self.lexicon_accuracy, self.lexicon_new_word_accuracy, self.lexicon_macro_f1, self.lexicon_span_f1
                )[: len(columns)],
            ),
            (f"always {self.majority_tag!r}", *_row(self.majority_accuracy, None, None, None)[: len(columns)]),
            ("uniform (knows nothing)", *_row(self.uniform_accuracy, None, None, None)[: len(columns)]),
        )
        unseen = sum(self.unseen_tags.values())
        more = f" · {unseen:,} words with a tag never seen in training" if unseen else ""
        note = f"{self.sentences:,} sentences, {self.words:,} words, {self.new_words:,} of them new{more}"
        trivial = {"each word's most frequent tag": self.lexicon_accuracy}
        warning = worse_than_trivial(name, "accuracy", self.accuracy, trivial)
        confusion = confusion_table(self.tags, self.confusion)
        return Report(columns, rows, own=1, note=note, more=confusion, warning=warning)


class _Scores(nn.Module):
    """A tagger as a graph is: words, and how each different one is spelled, to the scores of all tags."""

    def __init__(self, model: Tagger) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        word_BT: Tensor,
        lengths_B: Tensor,
        slot_BT: Tensor | None = None,
        char_UC: Tensor | None = None,
        length_U: Tensor | None = None,
    ) -> tuple[Tensor]:
        if slot_BT is None or char_UC is None or length_U is None:  # nothing looks at them
            slot_BT, char_UC, length_U = word_BT, word_BT, lengths_B
        read = self.model.reader(Words(word_BT, slot_BT, char_UC, length_U), lengths_B)
        return (self.model.head.scores(read.outputs_BSC),)


@final
class TaggingRun(PredictingRun):
    """A trained tagger: a tag for each word of a sentence.

    >>> run = sw.load("runs/tagging")
    >>> 0 <= run.evaluate().accuracy <= 1
    True
    >>> run.generate("the cat sees").split()[::2]  # each word with its tag
    ['the', 'cat', 'sees']
    >>> row = run.predict("tags.tsv")[0]
    >>> len(row["tags"]) == len(row["words"])
    True
    >>> len(next(run.predict_lines("tags.tsv")).split())
    2
    >>> len(run.specimens(text="the cat sees"))
    1
    """

    _evaluation = TaggingEvaluation

    spec: TaggingSpec
    model: Tagger

    def _open(self, opened: Opened) -> Tagger:
        self.known = Known.load(self.spec.words, opened.verified)
        return opened.model(lambda: build(self.spec, self.known))

    def sizes(self) -> dict[str, Any]:
        return {**self.spec.model.sizes(), "tags": len(self.known.tags)}

    @of_this_run
    def evaluate(self, data: Data | None = None) -> TaggingEvaluation:
        if data is None:
            held = held_out(self.spec)
        else:
            with as_files(self.spec, data) as files:
                held = read_sentences(files.data, files.paths)
        tags, words, true = self.known.tags, list(words_of(held)), list(tags_of(held))
        true_N, unseen = tags.encode(true, unseen="wrong")
        guessed = guess(self.model, encode(self.spec, self.known, held), true_N, device=self.device)
        own, trivial = tags.decode(guessed.best_N.tolist()), self.known.lexicon.tag(words)
        new = [word not in self.known.lexicon.of_word for word in words]
        spans = span.marks_spans([*tags.names, *true])
        own_scores, trivial_scores = (label_scores(true, found, names=tags.names) for found in (own, trivial))
        return TaggingEvaluation(
            accuracy=own_scores.accuracy,
            new_word_accuracy=_accuracy(true, own, new),
            macro_f1=own_scores.macro_f1,
            span_f1=_span_f1(held, own) if spans else None,
            nats=guessed.nats,
            sentences=len(held),
            words=len(words),
            new_words=sum(new),
            lexicon_accuracy=trivial_scores.accuracy,
            lexicon_new_word_accuracy=_accuracy(true, trivial, new),
            lexicon_macro_f1=trivial_scores.macro_f1,
            lexicon_span_f1=_span_f1(held, trivial) if spans else None,
            majority_accuracy=true.count(self.known.lexicon.otherwise) / len(true),
            majority_tag=self.known.lexicon.otherwise,
            uniform_accuracy=1 / len(tags),
            per_tag=own_scores.per_class,
            confusion=own_scores.confusion,
            tags=own_scores.labels,
            unseen_tags=dict(unseen),
        )

    @property
    def machine(self) -> Machine[Any] | None:
        return self.model.reader.layers.machine

    def portable(self) -> Portable:
        # Scores are what the graph gives; the runtime finds the best tags, along a chain too.
        encoding, head = self.known.encoding, self.model.head
        entry = self.model.reader.entry
        assert isinstance(entry, WordEntry)
        spelled = entry.spelling is not None
        chain, context = None, longest_context(self.model)
        if isinstance(head, ChainedTags):  # JSON has no -∞
            chain = [_finite(part.detach().cpu().tolist()) for part in head.crf.weights()]
        settings = {
            "tags": self.known.tags.names,
            "longest": self.spec.data.longest,
            "spelled": encoding.longest if spelled else None,
            "chain": chain,
            "context": context,
        }

        def sample(rows: int, time: int, generator: torch.Generator) -> tuple[Tensor, ...]:
            word_BT, lengths_B = ragged_tokens(encoding.words.vocab, rows, time, generator)
            if not spelled:
                return word_BT, lengths_B
            words, letters = rows + time, 7
            slot_BT = torch.randint(words, (rows, time), generator=generator)
            char_UC, length_U = ragged_tokens(encoding.characters.vocab, words, letters, generator)
            return word_BT, lengths_B, slot_BT, char_UC, length_U

        both: Axes = {0: "batch", 1: "time"}
        inputs: list[tuple[str, Axes]] = [("words", both), ("lengths", {0: "batch"})]
        if spelled:
            inputs += [("slots", both), ("letters", {0: "forms", 1: "letters"}), ("spelled", {0: "forms"})]
        whole = Whole("tag", _Scores(self.model), inputs, [("scores", both)], sample, longest=context)
        files = {"words.json": encoding.words.to_json(), "characters.json": encoding.characters.to_json()}
        return Portable(settings, files, whole=whole)

    def answers(self) -> Answers:
        some = held_out(self.spec)[:MOST]
        guessed = guess(self.model, encode(self.spec, self.known, some), device=self.device)
        rows: list[Answer] = []
        for sentence, tags in zip(some, by_sentence(self.known.tags.decode(guessed.best_N.tolist()), some)):
            words = sentence.words
            for at, (true, tag) in enumerate(zip(sentence.tags, tags)):
                before, after = words[max(at - _AROUND, 0) : at], words[at + 1 : at + 1 + _AROUND]
                given = f"{' '.join(before)} [{words[at]}] {' '.join(after)}".strip()
                rows.append(Answer(given, words[at], true, tag))
        return Answers(rows[:MOST])

    def specimens(self, data: Data | None = None, *, text: str | None = None) -> TaggingSpecimens:
        """Sentences for `sw.inspect`: held-out ones, those of `data`, or the lines of a `text`."""
        if text is not None:
            lines = [tuple(line.split()) for line in text.splitlines()]
            sentences = [Tagged(words, (), Where("the text", at)) for at, words in enumerate(lines, 1) if words]
            source = "the given text"
        elif data is None:
            sentences, source = held_out(self.spec), "the held-out sentences"
        else:
            with as_files(self.spec, data) as files:
                sentences, source = read_sentences(files.data, files.paths), source_name(data)
        return TaggingSpecimens(
            self.model, sentences, spec=self.spec, known=self.known, source=source, device=self.device
        )

    def _generate(self, prompt: str, tokens: int | None, sampling: Sampling, stop: Sequence[str]) -> str:
        """The words of the prompt, spaces between them, one a line with its tag; each line of it is a sentence."""
        lines = [line.split() for line in self._asked(prompt).splitlines()]
        with temporary_file("the prompt", "\n\n".join("\n".join(words) for words in lines if words) + "\n") as file:
            layout = Layout(format="columns", word=0, tag=1)
            return "\n".join(with_tags(file, [tags for _, tags, _ in self._tagged(str(file), layout)], layout=layout))

    def _rows(self, paths: Sequence[str], data: TaggedDataSpec) -> Iterator[dict[str, Any]]:
        """Each sentence with its tags and how sure each is: a softmax, or the marginals of all paths."""
        for path in paths:
            with spooled(path) as file:
                for one, tags, p in self._tagged(file, layout_at(data, path)):
                    line = {"file": path, "line": one.where.line, "words": list(one.words)}
                    yield {**line, "tags": list(tags), "probabilities": list(p)}

    def _answer(self, row: Mapping[str, Any]) -> list[str]:
        return list(row["tags"])

    def predict_lines(self, data: str | Path | Sequence[str | Path]) -> Iterator[str]:
        """The file itself, line by line, with these tags in its column of tags."""
        for path in named(data):
            layout = layout_at(self.spec.data, path)
            with spooled(path) as file:
                tags = [tags for _, tags, _ in self._tagged(file, layout)]
                yield from with_tags(file, tags, layout=layout)

    def _tagged(self, file: str, layout: Layout) -> Iterator[tuple[Tagged, Sequence[str], Sequence[float]]]:
        sentences = read_tagged(file, layout=layout, tags=False)
        for begin in range(0, len(sentences), _SENTENCES):
            some = sentences[begin : begin + _SENTENCES]
            guessed = guess(self.model, encode(self.spec, self.known, some), device=self.device)
            tags = by_sentence(self.known.tags.decode(guessed.best_N.tolist()), some)
            yield from zip(some, tags, by_sentence(guessed.p_N.tolist(), some), strict=True)


def _finite(weights: Any) -> Any:
    """None for what is forbidden."""
    return [_finite(row) for row in weights] if isinstance(weights, list) else weights if weights > -math.inf else None


def _accuracy(true: Sequence[str], found: Sequence[str], counted: Sequence[bool]) -> float | None:
    right = [a == b for a, b, count in zip(true, found, counted, strict=True) if count]
    return sum(right) / len(right) if right else None


def _span_f1(sentences: Sequence[Tagged], tags: Sequence[str]) -> float:
    return span.measure([sentence.tags for sentence in sentences], by_sentence(tags, sentences)).f1


def _row(accuracy: float, new_words: float | None, macro_f1: float | None, span_f1: float | None) -> tuple[str, ...]:
    return (percent(accuracy), percent(new_words), *("" if f1 is None else f"{f1:.3f}" for f1 in (macro_f1, span_f1)))
