"""A trained encoder-decoder, opened."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, final, overload

import numpy as np
import torch

from statewise.data import Text, Tokenizer, read_texts
from statewise.data.vocabulary import END
from statewise.decoding import Hypothesis
from statewise.models import ConditionalMachine
from statewise.models.build_seq2seq import build_seq2seq
from statewise.specs import TranslationSpec, UserError, make_spec
from statewise.tasks.metric.translation import bleu, chrf, exact_match, tokenised_bleu, translation_scores
from statewise.tasks.report import Report
from statewise.tasks.run import Opened, Run
from statewise.tasks.translation.examples import Ids, Languages, Pairs, load_frequent, read_files, read_split
from statewise.tasks.translation.write import Writer, most_written, told
from statewise.training.forcing import ExposureGap, exposure_gap, feed_tokens

_ROWS = 1024  # translated at a time, so that a long file streams


class Translation(NamedTuple):
    text: str
    score: float  # what hypotheses are ranked by
    log_probability: float
    tokens: tuple[str, ...]
    source_tokens: tuple[str, ...]  # as they were read, the end symbol last
    alignment: list[list[float]] | None  # for each token its weights over `source_tokens`


class TranslationEvaluation(NamedTuple):
    nats: float  # per target token, the true past told
    bleu: float
    signature: str
    bleu_tokenised_lower: float
    chrf: float
    ter: float
    exact: float
    rows: int
    tokens: int
    uniform_nats: float
    copy: dict[str, float]  # the source as its own translation
    frequent: dict[str, float]  # the most frequent target of training, whatever the source
    frequent_target: str
    cut: int  # rows of which not all was read
    decoding: dict[str, Any]

    def report(self, name: str) -> Report:
        own = {"bleu": self.bleu, "bleu_tokenised_lower": self.bleu_tokenised_lower}
        own |= {"chrf": self.chrf, "exact": self.exact}
        rows = (
            ("perfect", "100.00", "100.00", "100.00", "100.0 %", "0.000"),
            (name, *_cells(own), f"{self.nats:.3f}"),
            ("copy of the source", *_cells(self.copy), ""),
            (f"always {_short(self.frequent_target)!r}", *_cells(self.frequent), ""),
            ("uniform (knows nothing)", "", "", "", "", f"{self.uniform_nats:.3f}"),
        )
        cut = f" · {self.cut:,} longer than is read" if self.cut else ""
        return Report(
            ("BLEU", "tok. lower BLEU", "chrF", "exact", "nats"),
            rows,
            own=1,
            note=f"{self.rows:,} pairs · beam {self.decoding['beam']}{cut} · {self.signature}",
        )


def _cells(scores: dict[str, float]) -> tuple[str, ...]:
    numbers = tuple(f"{scores[name]:.2f}" for name in ("bleu", "bleu_tokenised_lower", "chrf"))
    return (*numbers, f"{100 * scores['exact']:.1f} %")


def _short(text: str) -> str:
    return text if len(text) <= 24 else f"{text[:23]}…"


@final
class TranslationRun(Run):
    spec: TranslationSpec
    model: ConditionalMachine[Any]

    def __init__(
        self,
        path: Path,
        *,
        spec: TranslationSpec,
        model: ConditionalMachine[Any],
        languages: Languages,
        frequent: str,
        device: torch.device,
        skipped: Sequence[str] = (),
    ) -> None:
        self.path, self.spec, self.model = path, spec, model.eval()
        self.languages, self.frequent, self.skipped = languages, frequent, list(skipped)
        self._device = device

    @classmethod
    def open(cls, spec: TranslationSpec, opened: Opened) -> "TranslationRun":
        languages = Languages.load(spec.data, opened.verified)
        model = opened.model(
            lambda: build_seq2seq(
                spec.model,
                source_vocab=languages.source.vocab,
                target_vocab=languages.target.vocab,
                seed=spec.seed,
            )
        )
        return cls(
            opened.path,
            spec=spec,
            model=model,
            languages=languages,
            frequent=load_frequent(opened.text("frequent.json")),
            device=opened.device,
            skipped=opened.skipped,
        )

    @property
    def device(self) -> torch.device:
        return self._device

    def sizes(self) -> dict[str, Any]:
        vocabularies = {"source_vocab": self.languages.source.vocab, "target_vocab": self.languages.target.vocab}
        return {**self.spec.model.sizes(), **vocabularies}

    def with_settings(self, settings: Sequence[str]) -> "TranslationRun":
        spec = make_spec(self.spec.model_dump(exclude_none=True), settings, source="run.toml")
        if not isinstance(spec, TranslationSpec) or spec != self.spec.model_copy(update={"decoding": spec.decoding}):
            raise UserError("only decoding.* can be changed after training", fix="for example decoding.beam=10")
        return TranslationRun(
            self.path,
            spec=spec,
            model=self.model,
            languages=self.languages,
            frequent=self.frequent,
            device=self.device,
            skipped=self.skipped,
        )

    # ---------------------------------------------------------------- figures

    def evaluate(self, data: str | Path | Sequence[str] | None = None) -> TranslationEvaluation:
        """`data` are files of pairs, or sources and then as many targets."""
        held = self._held(data)
        rows = self.languages.encode(held)
        truth = told(self.model, rows, end_id=self.languages.target.end_id, device=self.device)
        writer = self._writer()
        written = [writer.text(found[0]) for found in writer.search(rows.sources)]
        scores = translation_scores(written, held.targets)
        return TranslationEvaluation(
            nats=truth.nats_per_token,
            bleu=scores.bleu,
            signature=scores.signature,
            bleu_tokenised_lower=scores.bleu_tokenised_lower,
            chrf=scores.chrf,
            ter=scores.ter,
            exact=scores.exact,
            rows=len(held),
            tokens=truth.tokens,
            uniform_nats=math.log(self.languages.target.vocab),
            copy=_baseline(held.sources, held.targets),
            frequent=_baseline([self.frequent] * len(held), held.targets),
            frequent_target=self.frequent,
            cut=rows.cut,
            decoding=writer.decoding.model_dump(),
        )

    def exposure_gap(
        self,
        data: str | Path | Sequence[str] | None = None,
        *,
        rows: int = 128,
        choice: Literal["sample", "best"] = "best",
        seed: int = 0,
    ) -> ExposureGap:
        """What it costs, along the target, to have read its own output instead of the truth; on the first `rows`."""
        encoded = self.languages.encode(self._held(data))
        index = np.arange(min(rows, len(encoded)))
        batch = encoded.batch(index, self.languages.target.end_id).to(self.device)
        with torch.no_grad():
            state = self.model.condition(batch.source_BS, batch.source_length_B)
        return exposure_gap(
            self.model,
            batch.input_BT,
            batch.target_BT,
            state,
            lengths_B=batch.length_B,
            feedback=feed_tokens(choice),
            seed=seed,
        )

    def _held(self, data: str | Path | Sequence[str] | None) -> Pairs:
        if data is None:
            return read_split(self.spec.data, seed=self.spec.seed)[1]
        paths = [str(data)] if isinstance(data, str | Path) else [str(one) for one in data]
        return read_files(self.spec.data, paths)

    def _writer(self) -> Writer:
        decoding, most = self.spec.decoding, most_written(self.spec.model.decoder)
        return Writer(self.model, self.languages, decoding, most, self.device)

    # ---------------------------------------------------------------- translations

    @overload
    def translate(self, text: str) -> str: ...

    @overload
    def translate(self, text: list[str]) -> list[str]: ...

    def translate(self, text: str | list[str]) -> str | list[str]:
        """The best translation of a text, or of each of several."""
        if isinstance(text, str):
            return self.translate([text])[0]
        return [found[0].text for found in self.hypotheses(text)]

    def hypotheses(self, texts: Sequence[str], *, align: bool = False) -> Iterator[list[Translation]]:
        """For each text its `decoding.n_best` translations, the best first.

        `align` gives the weights over the source's tokens for each token written. An empty text stays empty.
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
                yield [self._told(one, source, writer, align) for one in best]

    def _told(self, hypothesis: Hypothesis, source: Ids, writer: Writer, align: bool) -> Translation:
        weights = [] if hypothesis.alignment is None else hypothesis.alignment.float().tolist()
        return Translation(
            writer.text(hypothesis),
            hypothesis.score,
            hypothesis.log_probability,
            _spelled(self.languages.target, hypothesis.tokens),
            _spelled(self.languages.source, source.tolist()),
            weights if align else None,
        )

    def predict(self, data: str | Path | Sequence[str]) -> Iterator[dict[str, Any]]:
        """Of each source, read from lines or from a table's source column: its translations with their scores."""
        texts, align = self._sources(data), self.spec.decoding.align
        for text, best in zip(texts, self.hypotheses([one.text for one in texts], align=align)):
            row = {
                "file": text.where.path,
                "line": text.where.line,
                "source": text.text,
                "translation": best[0].text,
                "hypotheses": [
                    {"text": one.text, "score": one.score, "log_probability": one.log_probability} for one in best
                ],
            }
            if align:
                names = ("source_tokens", "tokens", "alignment")
                row |= {name: getattr(best[0], name) for name in names}
            yield row

    def predict_lines(self, data: str | Path | Sequence[str]) -> Iterator[str]:
        """The translation of each source, one a line; whatever breaks lines has become a space."""
        found = self.hypotheses([one.text for one in self._sources(data)])
        return (" ".join(best[0].text.splitlines()) for best in found)

    def _sources(self, data: str | Path | Sequence[str]) -> list[Text]:
        spec = self.spec.data
        if spec.format == "scan":
            return [one._replace(text=_scan_source(one.text)) for one in read_texts(data, format="lines")]
        form = "auto" if spec.format == "gettext" else spec.format
        return read_texts(data, text=spec.source_column, format=form, header=spec.header)


def _baseline(written: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """Without TER, which may take minutes where lines are long and nothing fits."""
    figures = (bleu, tokenised_bleu, chrf, exact_match)
    names = ("bleu", "bleu_tokenised_lower", "chrf", "exact")
    return {name: figure(written, references).value for name, figure in zip(names, figures)}


def _scan_source(line: str) -> str:
    """Of `IN: … OUT: …` the source; a bare source is one too."""
    return line.strip().removeprefix("IN:").partition("OUT:")[0].strip()


def _spelled(tokenizer: Tokenizer, ids: Sequence[int]) -> tuple[str, ...]:
    return tuple(END if i == tokenizer.end_id else tokenizer.decode([i]) for i in ids)
