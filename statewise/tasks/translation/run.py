"""A trained translator, opened."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Self, final, overload

import numpy as np

from statewise.core import Machine
from statewise.data import Data, Text, array_of, as_files, read_lines, read_texts, source_name
from statewise.decoding import Hypothesis, Sampling, calibrate_lengths
from statewise.models import ConditionalMachine, Terminating
from statewise.specs import DecodingSpec, PairDataSpec, TranslationSpec, UserError, from_json
from statewise.tasks.answers import MOST, Answer, Answers, tokens_per_second
from statewise.tasks.folder import Opened
from statewise.tasks.metric.translation import exact_lines, translation_scores
from statewise.tasks.portable import Portable
from statewise.tasks.report import of_this_run
from statewise.tasks.run import PredictingRun, SelfReadingRun, named
from statewise.tasks.translation.evaluation import TranslationEvaluation, baseline, by_length, for_machines
from statewise.tasks.translation.examples import Languages, Pairs, Rows, load_frequent
from statewise.tasks.translation.portable import portable
from statewise.tasks.translation.reading import read_files, read_split
from statewise.tasks.translation.sides import SourceRow, series_errors, spelled
from statewise.tasks.translation.specimens import Given, TranslationSpecimens, pairs_in
from statewise.tasks.translation.write import Writer, make_translator, told
from statewise.training import ExposureGap, vouched_for

_TIMED = 8  # sources that are translated under the clock
_ROWS = 1024  # translated at a time, so that a long file streams
_CALIBRATED = 128  # rows whose lengths are drawn many times


class Translation(NamedTuple):
    text: str
    score: float  # what hypotheses are ranked by
    log_probability: float
    tokens: tuple[str, ...]
    source_tokens: tuple[str, ...]  # as they were read, the end symbol last
    alignment: list[list[float]] | None  # for each token its weights over `source_tokens`


@final
class TranslationRun(PredictingRun, SelfReadingRun):
    """A trained translator, or any other model from one sequence to another.

    >>> run = sw.load("runs/translation")
    >>> run.evaluate().bleu >= 0
    True
    >>> len(run.translate(["a b c", "d e"]))
    2
    >>> drawn = run.generate("a b c", tokens=4, sampling=sw.Sampling(seed=3))
    >>> row = run.predict("pairs.tsv")[0]
    >>> row["translation"] == row["hypotheses"][0]["text"] == next(run.predict_lines("pairs.tsv"))
    True
    >>> len(run.exposure_gap(rows=4).gap_T) > 0
    True
    >>> run.specimens(text="a b c\\tc b a").source
    'the given text'
    """

    _evaluation = TranslationEvaluation
    _changeable: ClassVar[Mapping[str, tuple[str, ...]]] = {"decoding": tuple(DecodingSpec.model_fields)}

    spec: TranslationSpec
    model: Machine[Any]

    def _open(self, opened: Opened) -> Machine[Any]:
        self.languages = Languages.load(self.spec.data, opened.verified)
        self.frequent = load_frequent(opened.text("frequent.json"))
        self.longest_learned = _longest_learned(opened)
        self._translator = make_translator(
            self.spec, self.languages, opened.device, longest_learned=self.longest_learned
        )
        return opened.model(self._translator.build)

    def sizes(self) -> dict[str, Any]:
        if self.languages.shared:
            return {**self.spec.model.sizes(), "vocabulary": self.languages.target.vocab}
        vocabularies = {**self.languages.source.inputs(), "target_vocab": self.languages.target.vocab}
        return {**self.spec.model.sizes(), **vocabularies}

    def with_settings(self, settings: Sequence[str]) -> Self:
        made = super().with_settings(settings)
        made._translator = make_translator(made.spec, made.languages, made.device, longest_learned=made.longest_learned)
        return made

    # ---------------------------------------------------------------- figures

    @of_this_run
    def evaluate(self, data: Data | None = None, *, references: Sequence[str | Path] = ()) -> TranslationEvaluation:
        """BLEU, chrF, TER and loss on held-out pairs, or on `data`: pairs, or files of pairs or of sources and targets.

        Further `references` are files, each with one more translation a line. Loss and lengths go by the first.

        >>> sw.load("runs/translation").evaluate("pairs.tsv").rows
        60
        """
        held = self._held(data)
        more = [self._reference(path, held) for path in references]
        rows = self.languages.encode(held)
        truth = told(self._translator, self.model, rows)
        writer = self._writer()
        best = [found[0] for found in writer.search(rows.sources)]
        written = [writer.text(hypothesis) for hypothesis in best]
        length_N = [len(hypothesis.tokens) for hypothesis in best]
        if self.languages.levels is None:
            parting = self.languages.parting(self.spec.data, held.targets)
            exact_N = exact_lines(
                parting.words(written), parting.words(held.targets), more_references=list(map(parting.words, more))
            )
            scores = translation_scores(written, held.targets, parting=parting, more_references=more)._asdict()
            scores |= {
                "parted": parting.note,
                "frequent": baseline([self.frequent] * len(held), held.targets, parting, more),
            }
            if self.spec.data.source_kind == "text":
                scores["copy"] = baseline(held.sources, held.targets, parting, more)
        else:
            exact_N = [
                [*hypothesis.tokens, self.languages.target.end_id] == row.tolist()
                for hypothesis, row in zip(best, rows.targets)
            ]
            scores = {**series_errors(written, held.targets), "exact": float(np.mean(exact_N))}
            scores["frequent"] = series_errors([self.frequent] * len(held), held.targets)
        longest_N = self._translator.longest(rows.sources, writer.decoding).cpu().numpy()
        apart_N = np.abs(np.array(length_N) - rows.whole)
        ranges = by_length(rows.whole.tolist(), length_N, exact_N, learned=self.longest_learned)
        return TranslationEvaluation(
            source_kind=self.spec.data.source_kind,
            nats=truth.nats_per_token,
            shuffled_nats=self._shuffled(rows),
            references=1 + len(more),
            rows=len(held),
            tokens=truth.tokens,
            uniform_nats=math.log(self.languages.target.vocab),
            frequent_target=self.frequent,
            cut=rows.cut,
            out_of_reach=int((rows.whole > longest_N).sum()),
            unknown=self.languages.source.unknown_share(rows.sources),
            unknown_target=self.languages.target.unknown_share(rows.targets),
            decoding=writer.decoding.model_dump(),
            termination=self.spec.termination.kind,
            length_error=float(apart_N.mean()),
            length_exact=float((apart_N == 0).mean()),
            longest_learned=self.longest_learned,
            by_length=[length_range._asdict() for length_range in ranges],
            lengths=self._calibration(writer, rows),
            **scores,
        )

    def _shuffled(self, rows: Rows) -> float | None:
        """Of a class or a vector: the nats if every target is given the source of another row."""
        if self.spec.data.source_kind == "text":
            return None
        order_N = np.random.default_rng(0).permutation(len(rows))
        other = replace(rows, sources=[rows.sources[i] for i in order_N])
        return told(self._translator, self.model, other).nats_per_token

    def _calibration(self, writer: Writer, rows: Rows) -> dict[str, Any] | None:
        """On rows spread evenly over the data: each is written many times."""
        if not writer.decoding.draws:
            return None
        index = np.unique(np.linspace(0, len(rows) - 1, min(_CALIBRATED, len(rows))).astype(int))
        drawn_NM = writer.draw_lengths([rows.sources[i] for i in index])
        return for_machines(calibrate_lengths(rows.whole[index], drawn_NM))

    def exposure_gap(
        self,
        data: Data | None = None,
        *,
        rows: int = 128,
        choice: Literal["sample", "best"] = "best",
        seed: int = 0,
    ) -> ExposureGap:
        """How much the loss rises along the target when the model reads its own output, on the first `rows` rows."""
        encoded = self.languages.encode(self._held(data))
        batch = self._translator.batch(encoded, np.arange(min(rows, len(encoded))))
        return self._translator.exposure_gap(self.model, batch, choice=choice, seed=seed)

    def answers(self) -> Answers:
        held = self._held(None)
        some = held.chosen(range(min(MOST, len(held))))
        translated = self.translate(list(some.sources))
        return Answers(
            [
                Answer(source, "", " ".join(target.split()), " ".join(text.split()))
                for source, target, text in zip(some.sources, some.targets, translated)
            ]
        )

    def portable(self) -> Portable:
        return portable(self.model, self.spec, self.languages, self._translator, longest_learned=self.longest_learned)

    def decode_speed(self) -> float | None:
        sources = self._held(None).sources[: _TIMED + 1]
        if len(sources) < 2:
            return None
        self.translate(sources[0])

        def translate_others() -> int:
            return sum(len(next(self.hypotheses([source]))[0].tokens) for source in sources[1:])

        return tokens_per_second(translate_others, self.device)

    # ---------------------------------------------------------------- lenses

    def specimens(self, data: Data | None = None, *, text: str | None = None) -> TranslationSpecimens:
        """Pairs for `sw.inspect`: held-out ones, those of `data`, or the lines of a `text`.

        A line without a target is paired with the model's own translation.
        """
        if text is not None:
            given = pairs_in(text, self.translate, self.languages)
        else:
            held = self._held(data)
            rows, where = self.languages.encode(held), [str(one) for one in held.where]
            source = "the held-out pairs" if data is None else source_name(data)
            cut = f", {rows.cut:,} of them cut to {self.languages.longest:,} tokens" if rows.cut else ""
            given = Given(rows, where, [True] * len(held), f"{source}{cut}")
        assert isinstance(self.model, ConditionalMachine | Terminating)
        return TranslationSpecimens(self.model, given, languages=self.languages, device=self.device)

    def _held(self, data: Data | None) -> Pairs:
        if data is None:
            return read_split(self.spec.data, seed=self.spec.seed)[1]
        with as_files(self.spec, data) as files:
            return read_files(files.data, files.paths)

    def _reference(self, path: str | Path, held: Pairs) -> list[str]:
        lines = [line.text for line in read_lines(Path(path), encoding=self.spec.data.encoding)]
        if len(lines) != len(held):
            raise UserError(
                f"{str(path)!r} has {len(lines)} lines, but {len(held)} pairs are evaluated",
                fix="give one reference for each pair, in their order",
            )
        return lines

    def _writer(self) -> Writer:
        return Writer(self._translator, self.model, self.spec.decoding)

    # ---------------------------------------------------------------- translations

    @overload
    def translate(self, text: str) -> str: ...

    @overload
    def translate(self, text: list[str]) -> list[str]: ...

    def translate(self, text: str | list[str]) -> str | list[str]:
        """The best translation of a text, or a list of them for a list of texts.

        >>> isinstance(sw.load("runs/translation").translate("a b c"), str)
        True
        """
        if isinstance(text, str):
            return self.translate([text])[0]
        return [found[0].text for found in self.hypotheses(text)]

    def hypotheses(self, texts: Sequence[str], *, align: bool = False) -> Iterator[list[Translation]]:
        """For each text its `decoding.n_best` translations with their scores, the best first.

        `align` adds the attention weights over the source for each token. An empty text stays empty.

        >>> best, *others = next(sw.load("runs/translation").hypotheses(["a b c"]))
        >>> best.log_probability < 0
        True
        """
        writer = self._writer()
        for begin in range(0, len(texts), _ROWS):
            some = texts[begin : begin + _ROWS]
            real = [number for number, text in enumerate(some) if text.strip()]
            sources = self.languages.encode_sources([some[number] for number in real])
            found = dict(zip(real, zip(sources, writer.search(sources, align=align))))
            for number in range(len(some)):
                if number not in found:
                    yield [Translation("", 0.0, 0.0, (), (), [] if align else None)]
                    continue
                source, best = found[number]
                yield [self._told(hypothesis, source, writer, align) for hypothesis in best]

    def _told(self, hypothesis: Hypothesis, source: SourceRow, writer: Writer, align: bool) -> Translation:
        weights = [] if hypothesis.alignment is None else hypothesis.alignment.float().tolist()
        return Translation(
            writer.text(hypothesis),
            hypothesis.score,
            hypothesis.log_probability,
            spelled(self.languages.target, hypothesis.tokens),
            self.languages.source.spelled(source),
            weights if align else None,
        )

    def _generate(self, prompt: str, tokens: int | None, sampling: Sampling, stop: Sequence[str]) -> str:
        """A sampled translation of the prompt; at temperature 0 the most likely token at every step."""
        (source,) = self.languages.encode_sources([self._asked(prompt)])
        longest = int(self._translator.longest([source], self.spec.decoding)[0])
        if tokens is not None and tokens < 0:
            raise UserError(f"tokens = {tokens} is not valid, expected 0 or more")
        drawn = self._translator.draw(
            self.model,
            source,
            self.spec.decoding,
            sampling,
            longest=longest if tokens is None else min(tokens, longest),
        )
        text = self._writer().text(drawn)
        ends = [text.index(one) for one in stop if one in text]
        return text[: min(ends)] if ends else text

    def _rows(self, paths: Sequence[str], data: PairDataSpec) -> Iterator[dict[str, Any]]:
        """Of each source, read from lines or from a table's source column: its translations with their scores."""
        texts, align = self._sources(paths, data), self.spec.decoding.align
        for text, best in zip(texts, self.hypotheses([text.text for text in texts], align=align)):
            row = {
                "file": text.where.path,
                "line": text.where.line,
                "source": text.text,
                "translation": best[0].text,
                "hypotheses": [
                    {"text": hypothesis.text, "score": hypothesis.score, "log_probability": hypothesis.log_probability}
                    for hypothesis in best
                ],
            }
            if self.languages.levels is not None:
                row["series"] = [float(token) for token in best[0].tokens]
            if align:
                names = ("source_tokens", "tokens", "alignment")
                row |= {name: getattr(best[0], name) for name in names}
            yield row

    def _answer(self, row: Mapping[str, Any]) -> Any:
        """A text, or the numbers of a series."""
        return row.get("series", row["translation"])

    def _is_one(self, data: Data) -> bool:
        vector = array_of(data) if self.spec.data.source_kind == "vector" else None
        return isinstance(data, str) if vector is None else vector.ndim == 1

    def predict_lines(self, data: str | Path | Sequence[str | Path]) -> Iterator[str]:
        """The translation of each source, one a line; whatever breaks lines has become a space."""
        found = self.hypotheses([source.text for source in self._sources(named(data), self.spec.data)])
        return (" ".join(best[0].text.splitlines()) for best in found)

    def _sources(self, paths: Sequence[str], spec: PairDataSpec) -> list[Text]:
        if spec.format == "scan":
            return [
                text._replace(text=_scan_source(text.text))
                for text in read_texts(paths, format="lines", encoding=spec.encoding)
            ]
        form = "auto" if spec.format == "gettext" else spec.format
        return read_texts(
            paths,
            text=spec.source_column,
            numbers=spec.source_kind == "vector",
            format=form,
            header=spec.header,
            delimiter=spec.delimiter,
            encoding=spec.encoding,
        )


def _longest_learned(opened: Opened) -> int | None:
    """Runs from before it was kept do not have it."""
    if not vouched_for(opened.verified, "lengths.json"):
        return None
    try:
        longest = from_json(opened.text("lengths.json"))["longest"]
    except (ValueError, KeyError, TypeError):
        longest = None
    if not isinstance(longest, int):
        raise UserError(f"{str(opened.verified)!r}: lengths.json does not hold a length")
    return longest


def _scan_source(line: str) -> str:
    """Of `IN: … OUT: …` the source; a bare source is one too."""
    return line.strip().removeprefix("IN:").partition("OUT:")[0].strip()
