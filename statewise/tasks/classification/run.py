"""A trained classifier, opened."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np
import torch
from numpy.typing import NDArray

from statewise.core import Machine
from statewise.data import Data, array_of, as_files, numbers_in, read_texts, source_name
from statewise.data import Labels as Classes
from statewise.data.embedded import distance_of
from statewise.decoding import Sampling
from statewise.models import AnyClassifier, Classifier, GridClassifier, build_classifier, longest_context
from statewise.specs import ClassificationSpec, LabelledDataSpec, UserError, option
from statewise.tasks.answers import MOST, Answer, Answers
from statewise.tasks.bag_of_words import BAG_OF_WORDS, fit_bag_of_words
from statewise.tasks.classification.examples import (
    GridEncoding,
    Labels,
    TextEncoding,
    ValueEncoding,
    encode,
    load_encoding,
)
from statewise.tasks.classification.job import log_probabilities
from statewise.tasks.classification.reading import read_rows, read_split
from statewise.tasks.classification.specimens import ClassificationSpecimens
from statewise.tasks.folder import Opened
from statewise.tasks.metric.label import LabelScores, label_scores
from statewise.tasks.portable import Axes, Logits, Portable, Whole, ragged_lengths, ragged_tokens
from statewise.tasks.report import (
    Report,
    confusion_table,
    of_this_run,
    percent,
    shows_report,
    unknown_note,
    worse_than_trivial,
)
from statewise.tasks.run import PredictingRun, named
from statewise.tasks.specimen import UNKNOWN

_WIDEST = 23  # columns of a grid on which a graph is compared
_ROWS = 4096  # predicted at a time, so that a long file streams


@shows_report
class ClassificationEvaluation(NamedTuple):
    accuracy: float
    macro_f1: float
    nats: float
    rows: int
    majority_accuracy: float
    majority_class: str
    uniform_accuracy: float
    uniform_nats: float
    per_class: dict[str, dict[str, float]]
    confusion: list[list[int]]
    labels: list[str]  # the order of `confusion`: a row for each true label, a column for each prediction
    unseen: dict[str, int]  # labels that training never showed; their rows count as wrong
    cut: int  # rows of which not all was read
    unknown: float | None  # share of the tokens that the vocabulary does not have; None: there are no tokens
    learned: int  # texts of the held-out part that stand in the training part too: they flatter
    baselines: dict[str, dict[str, float]]  # of texts, what a bag of words gets; nothing if training data are not there
    accuracy_at: dict[int, float]  # of the embedded passages, by the distance of what the answer depends on

    def report(self, name: str) -> Report:
        nats = "" if math.isnan(self.nats) else f"{self.nats:.3f}"
        always = f"always {self.majority_class!r}"
        rows = (
            ("perfect", percent(1.0), "1.000", "0.000"),
            (name, percent(self.accuracy), f"{self.macro_f1:.3f}", nats),
            *(
                (key, percent(baseline["accuracy"]), f"{baseline['macro_f1']:.3f}", f"{baseline['nats']:.3f}")
                for key, baseline in self.baselines.items()
            ),
            (always, percent(self.majority_accuracy), "", ""),
            ("uniform (knows nothing)", percent(self.uniform_accuracy), "", f"{self.uniform_nats:.3f}"),
        )
        unseen = f" · {sum(self.unseen.values()):,} with a label never seen in training" if self.unseen else ""
        cut = f" · {self.cut:,} longer than is read" if self.cut else ""
        learned = f" · {self.learned:,} stand in the training part too, word by word" if self.learned else ""
        by_distance = ", ".join(f"{distance}: {percent(share)}" for distance, share in self.accuracy_at.items())
        at = f" · accuracy by distance: {by_distance}" if by_distance else ""
        note = f"{self.rows:,} rows{unseen}{cut}{unknown_note(self.unknown)}{learned}{at}"
        more = confusion_table(self.labels, self.confusion)
        trivial = {
            always: self.majority_accuracy,
            **{key: baseline["accuracy"] for key, baseline in self.baselines.items()},
        }
        warning = worse_than_trivial(name, "accuracy", self.accuracy, trivial)
        return Report(("accuracy", "macro F1", "nats"), rows, own=1, note=note, more=more, warning=warning)


@final
class ClassificationRun(PredictingRun):
    """A trained classifier.

    >>> run = sw.load("runs/classification")
    >>> run.evaluate().labels
    ['bad', 'good']
    >>> run.generate("a warm film") in run.classes.names
    True
    >>> rows = run.predict("rows.tsv")
    >>> rows[0]["line"], sorted(rows[0]["probabilities"])
    (2, ['bad', 'good'])
    >>> len(list(run.predict_lines("rows.tsv"))) == len(rows)
    True
    >>> len(run.specimens(text="a warm film"))
    1
    """

    _evaluation = ClassificationEvaluation

    spec: ClassificationSpec
    model: AnyClassifier

    def _open(self, opened: Opened) -> AnyClassifier:
        spec = self.spec
        self.encoding = load_encoding(spec.data, opened.verified)
        self.classes = Classes.from_json(opened.text("labels.json"))
        options = {"num_classes": len(self.classes), "seed": spec.seed, **self.encoding.model_input()}
        return opened.model(lambda: build_classifier(spec.model, spec.reader, **options))

    def sizes(self) -> dict[str, Any]:
        return {**self.spec.model.sizes(), "classes": len(self.classes)}

    @of_this_run
    def evaluate(self, data: Data | None = None) -> ClassificationEvaluation:
        train: Labels | None
        if data is None:
            train, held = read_split(self.spec.data, seed=self.spec.seed)
            learned = _in_both(train.content, held.content) if self.spec.data.kind == "text" else 0
        else:
            train, held, learned = self._training_data(), self._read(data), 0
        label_N, unseen = self.classes.encode(held.labels, where=held.where, unseen="wrong")
        rows = encode(self.encoding, held)
        log_NK = log_probabilities(self.model, rows, device=self.device)
        scores, nats = self._scores(held, label_N, log_NK)
        majority = int(np.argmax(self.classes.counts))
        return ClassificationEvaluation(
            accuracy=scores.accuracy,
            macro_f1=scores.macro_f1,
            nats=nats,
            rows=len(label_N),
            majority_accuracy=float((label_N == majority).mean()),
            majority_class=self.classes.names[majority],
            uniform_accuracy=1 / len(self.classes),
            uniform_nats=math.log(len(self.classes)),
            per_class=scores.per_class,
            confusion=scores.confusion,
            labels=scores.labels,
            unseen=dict(unseen),
            cut=rows.cut,
            unknown=rows.unknown,
            learned=learned,
            baselines={} if train is None else self._baselines(train, held, label_N),
            accuracy_at=self._accuracy_at(held, log_NK.argmax(-1) == label_N) if data is None else {},
        )

    def _accuracy_at(self, held: Labels, right_N: NDArray[np.bool_]) -> dict[int, float]:
        spec = self.spec.data
        if spec.kind != "text" or spec.embedded != "passages" or spec.train:
            return {}
        distance_N = np.array([distance_of(text) for text in held.content])
        return {int(distance): float(right_N[distance_N == distance].mean()) for distance in np.unique(distance_N)}

    def _scores(
        self, held: Labels, label_N: NDArray[np.int64], log_NK: NDArray[np.float64]
    ) -> tuple[LabelScores, float]:
        """Of the likeliest classes; and nats, over the rows whose label training showed."""
        guessed = self.classes.decode(log_NK.argmax(-1).tolist())
        seen_N = label_N >= 0
        nats = float(-log_NK[seen_N, label_N[seen_N]].mean()) if seen_N.any() else math.nan
        return label_scores(held.labels, guessed, names=self.classes.names), nats

    def _baselines(self, train: Labels, held: Labels, label_N: NDArray[np.int64]) -> dict[str, dict[str, float]]:
        if self.spec.data.kind != "text" or len(self.classes) < 2:
            return {}
        train_N, other = self.classes.encode(train.labels, unseen="wrong")
        if other:  # no longer the data of this run
            return {}
        bag = fit_bag_of_words(train.content, train_N, classes=len(self.classes))
        scores, nats = self._scores(held, label_N, bag.log_probabilities(held.content))
        return {BAG_OF_WORDS: {"accuracy": scores.accuracy, "macro_f1": scores.macro_f1, "nats": nats}}

    def _training_data(self) -> Labels | None:
        """None where the files are no longer what they were: other data are evaluated without them."""
        if not all(Path(path).exists() for path in self.spec.data.train):
            return None
        try:
            return read_split(self.spec.data, seed=self.spec.seed)[0]
        except UserError:
            return None

    def _read(self, data: Data) -> Labels:
        with as_files(self.spec, data) as files:
            return read_rows(files.data, files.paths)

    @property
    def machine(self) -> Machine[Any] | None:
        return self.model.reader.layers.machine if isinstance(self.model, Classifier) else None

    def portable(self) -> Portable:
        encoding = self.encoding
        context = longest_context(self.model)
        settings: dict[str, Any] = {"labels": self.classes.names, "kind": self.spec.data.kind, "context": context}
        if isinstance(encoding, TextEncoding):
            settings |= {"longest": encoding.longest, "end_id": encoding.tokenizer.end_id}
        elif isinstance(encoding, ValueEncoding):
            settings |= {"longest": encoding.longest, **encoding.scaling.to_json()}
        else:
            assert isinstance(encoding, GridEncoding)
            settings |= {"longest": None, "columns": encoding.columns, **encoding.scaling.to_json()}
        cells = isinstance(self.model, GridClassifier)

        def sample(rows: int, time: int, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
            if isinstance(encoding, TextEncoding):
                return ragged_tokens(encoding.tokenizer.vocab, rows, time, generator)
            places = [time, time % _WIDEST + 1] if cells else [time]
            sizes = [ragged_lengths(rows, longest, generator) for longest in places]
            values = torch.randn(rows, *places, encoding.model_input()["values"], generator=generator)
            return values, torch.stack(sizes, 1) if cells else sizes[0]

        source: Axes = {0: "batch", 1: "height", 2: "width"} if cells else {0: "batch", 1: "time"}
        whole = Whole(
            "classify",
            Logits(self.model),
            inputs=[
                ("tokens" if isinstance(encoding, TextEncoding) else "values", source),
                ("sizes" if cells else "lengths", {0: "batch"}),
            ],
            outputs=[("logits", {0: "batch"})],
            sample=sample,
            longest=context,
        )
        files = {name: text for name, text in encoding.files().items() if isinstance(text, str)}
        return Portable(settings, files, whole=whole)

    def answers(self) -> Answers:
        held = read_split(self.spec.data, seed=self.spec.seed)[1]
        some = held.chosen(np.arange(min(MOST, len(held.labels))))
        log_NK = log_probabilities(self.model, encode(self.encoding, some), device=self.device)
        guessed = self.classes.decode(log_NK.argmax(-1).tolist())
        given = [content if isinstance(content, str) else str(at) for content, at in zip(some.content, some.where)]
        return Answers([Answer(row, "", true, guess) for row, true, guess in zip(given, some.labels, guessed)])

    def specimens(self, data: Data | None = None, *, text: str | None = None) -> ClassificationSpecimens:
        """Rows for `sw.inspect`: held-out ones, those of `data`, or each line of a `text` (its class is not known)."""
        if text is not None:
            if self.spec.data.kind != "text":
                raise UserError(
                    f"this run classifies {self.spec.data.kind}, not texts",
                    fix=f"name a file: {option('data', 'FILE')}",
                )
            lines = [line for line in text.splitlines() if line.strip()]
            content: Sequence[Any] = lines
            label_N = np.full(len(lines), UNKNOWN)
            where, source = [f"line {number}" for number in range(1, len(lines) + 1)], "the given text"
        else:
            rows = read_split(self.spec.data, seed=self.spec.seed)[1] if data is None else self._read(data)
            content, label_N = rows.content, self.classes.encode(rows.labels, where=rows.where, unseen="wrong").ids_N
            where = [str(place) for place in rows.where]
            source = "the held-out rows" if data is None else source_name(data)
        return ClassificationSpecimens(
            self.model,
            content,
            label_N,
            where,
            encoding=self.encoding,
            classes=self.classes,
            source=source,
            device=self.device,
        )

    def _generate(self, prompt: str, tokens: int | None, sampling: Sampling, stop: Sequence[str]) -> str:
        """The class of the prompt."""
        asked: Any = self._asked(prompt)
        if self.spec.data.kind == "vector":
            asked = numbers_in(asked, where="the prompt")[None]
        elif self.spec.data.kind != "text":
            raise UserError(
                f"this run classifies {self.spec.data.kind}, and a prompt is a text",
                fix=f"statewise predict {self.path} FILE",
            )
        log_NK = log_probabilities(self.model, self.encoding.encode([asked]), device=self.device)
        return self.classes.names[int(log_NK[0].argmax())]

    def _rows(self, paths: Sequence[str], data: LabelledDataSpec) -> Iterator[dict[str, Any]]:
        if data.kind != "text":
            rows = read_rows(data, paths, labelled=False)
            content, where = list(rows.content), rows.where
        else:
            if data.format == "label-first" or data.format == "folder":  # what has no label yet is one text a line
                texts = read_texts(paths, format="lines", encoding=data.encoding)
            else:
                texts = read_texts(paths, **data.subset(*data.layout_of_table, "text"))
            content, where = [text.text for text in texts], [text.where for text in texts]
        for begin in range(0, len(content), _ROWS):
            some = content[begin : begin + _ROWS]
            log_NK = log_probabilities(self.model, self.encoding.encode(some), device=self.device)
            for log_K, place in zip(log_NK, where[begin : begin + _ROWS]):
                best = int(log_K.argmax())
                yield {
                    "file": place.path,
                    "line": place.line,
                    "label": self.classes.names[best],
                    "probabilities": {name: math.exp(log) for name, log in zip(self.classes.names, log_K.tolist())},
                }

    def _answer(self, row: Mapping[str, Any]) -> str:
        return str(row["label"])

    def _is_one(self, data: Data) -> bool:
        """One row of numbers has one axis less than several rows; the number of channels decides which it is."""
        array = None if self.spec.data.kind == "text" else array_of(data)
        if array is None:
            return isinstance(data, str)
        assert isinstance(self.encoding, ValueEncoding | GridEncoding)
        if self.spec.data.kind == "vector":
            return array.ndim == 1
        channels = len(self.encoding.scaling.mean_C)
        axes = 2 if self.spec.data.kind == "grid" else 1
        return array.ndim == axes if channels == 1 else array.ndim == axes + 1 and array.shape[-1] == channels

    def predict_lines(self, data: str | Path | Sequence[str | Path]) -> Iterator[str]:
        """The label of each row, one a line."""
        return (row["label"] for row in self._rows(named(data), self.spec.data))


def _in_both(train: Sequence[str], held: Sequence[str]) -> int:
    """How many held-out texts stand in the training part too."""
    held_out = set(held)
    met = {text for text in train if text in held_out}
    return sum(text in met for text in held) if met else 0
