"""From sources to hypotheses, and what the truth costs: batch by batch, with any way to translate."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from statewise.decoding import Hypothesis
from statewise.specs import DecodingSpec, Seq2SeqSpec, TranslationSpec
from statewise.tasks.translation.decoder_only import DecoderOnly
from statewise.tasks.translation.encoder_decoder import EncoderDecoder
from statewise.tasks.translation.examples import Languages, Rows, batches_of
from statewise.tasks.translation.sides import SourceRow
from statewise.tasks.translation.translator import Translator

_TOKENS = 1 << 13  # of sources and open hypotheses together, in one batch


class Writer(NamedTuple):
    """A model with its translator, and how it is to search."""

    translator: Translator
    model: Any
    decoding: DecodingSpec

    def greedy(self, sources: Sequence[SourceRow], *, poll: Callable[[], None] = lambda: None) -> list[Hypothesis]:
        """The likeliest token at every step: the quickest translation there is."""
        plain = self._replace(decoding=self.decoding.model_copy(update={"beam": 1, "n_best": 1, "coverage_penalty": 0}))
        return [found[0] for found in plain.search(sources, poll=poll)]

    @torch.no_grad()
    def search(
        self, sources: Sequence[SourceRow], *, align: bool = False, poll: Callable[[], None] = lambda: None
    ) -> list[list[Hypothesis]]:
        """For each source its best hypotheses. Rows are searched in order of length and given back in theirs."""
        found: list[list[Hypothesis]] = [[] for _ in sources]
        for index in batches_of([len(source) for source in sources], tokens=max(1, _TOKENS // self.decoding.beam)):
            poll()
            some = [sources[i] for i in index]
            for i, hypotheses in zip(index, self.translator.search(self.model, some, self.decoding, align=align)):
                found[i] = hypotheses
        return found

    @torch.no_grad()
    def draw_lengths(self, sources: Sequence[SourceRow]) -> NDArray[np.int64]:
        """`[sources, decoding.draws]` lengths of what the model writes when it draws."""
        drawn_NM = np.zeros((len(sources), self.decoding.draws), dtype=np.int64)
        done = 0
        for index in batches_of([len(source) for source in sources], tokens=max(1, _TOKENS // self.decoding.draws)):
            some = [sources[i] for i in index]
            drawn_NM[index] = self.translator.draw_lengths(self.model, some, self.decoding, first_row=done)
            done += len(index)
        return drawn_NM

    def text(self, hypothesis: Hypothesis) -> str:
        return self.translator.languages.target.decode(hypothesis.tokens)


class Told(NamedTuple):
    """Loss of the true targets under teacher forcing."""

    nats: float
    tokens: int  # ends included

    @property
    def nats_per_token(self) -> float:
        return self.nats / self.tokens


@torch.no_grad()
def told(translator: Translator, model: Any, rows: Rows, *, poll: Callable[[], None] = lambda: None) -> Told:
    nats, tokens = 0.0, 0
    for index in batches_of(rows.lengths, tokens=_TOKENS):
        poll()
        batch = translator.batch(rows, index)
        nats += float(translator.loss(model, batch))
        tokens += int(batch.length_B.sum())
    return Told(nats, tokens)


def make_translator(
    spec: TranslationSpec, languages: Languages, device: torch.device, *, longest_learned: int | None = None
) -> Translator:
    kind = EncoderDecoder if isinstance(spec.model, Seq2SeqSpec) else DecoderOnly
    return kind(spec, languages, device, longest_learned=longest_learned)
