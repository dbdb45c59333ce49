"""Translation by two machines: one reads the source, the other writes the target given what was read.

B batch, S source time, T target time, V vocabulary.
"""

from collections.abc import Sequence
from typing import Any, Literal, final

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from statewise.decoding import Hypothesis, Sampling, sample
from statewise.models import ConditionalMachine, build_seq2seq
from statewise.specs import DecodingSpec, Seq2SeqSpec
from statewise.tasks.loss import categorical_loss
from statewise.tasks.translation.examples import Batch
from statewise.tasks.translation.sides import SourceRow, padded
from statewise.tasks.translation.translator import Translator, search_tokens
from statewise.training import Feedback, Score, feed_tokens, nats


@final
class EncoderDecoder(Translator):
    """The end symbol of the target's vocabulary stands before what is read and after what is written."""

    @property
    def model_spec(self) -> Seq2SeqSpec:
        assert isinstance(self.spec.model, Seq2SeqSpec)
        return self.spec.model

    def build(self) -> ConditionalMachine[Any]:
        return build_seq2seq(
            self.model_spec,
            **self.languages.source.inputs(),
            target_vocab=self.languages.target.vocab,
            seed=self.spec.seed,
        )

    @property
    def start_id(self) -> int:
        return self.languages.target.end_id

    def never(self, decoding: DecodingSpec) -> list[int]:
        return self.unknown(decoding)

    def most_written(self, source: int) -> int | None:
        """The end symbol takes a place, where places come to an end."""
        longest = self.model_spec.decoder.longest
        return None if longest is None else longest - 1

    def begin(self, model: Any, batch: Batch) -> tuple[None, Any]:
        return None, model.condition(batch.source, batch.source_length_B)

    def feedback(self, choice: Literal["sample", "best"]) -> Feedback:
        return feed_tokens(choice)

    def total(
        self, model: Any, batch: Batch, summary_BD: Tensor | None, outputs_BTV: Tensor, smoothing: float
    ) -> Tensor:
        return categorical_loss(outputs_BTV, batch.target_BT, smoothing=smoothing).total

    def score(self, model: Any, batch: Batch, summary_BD: Tensor | None) -> Score:
        return nats

    def search(
        self, model: Any, sources: Sequence[SourceRow], decoding: DecodingSpec, *, align: bool
    ) -> list[list[Hypothesis]]:
        source, length_B = (part.to(self.device) for part in padded(sources))
        return search_tokens(
            model,
            model.condition(source, length_B),
            decoding,
            end_id=self.start_id,
            longest_B=self.longest(sources, decoding),
            never=self.never(decoding),
            align=align,
            source_lengths_B=length_B,
        )

    def draw(
        self, model: Any, source: SourceRow, decoding: DecodingSpec, sampling: Sampling, *, longest: int
    ) -> Hypothesis:
        given, length_B = (part.to(self.device) for part in padded([source]))
        (drawn,) = sample(
            model,
            model.condition(given, length_B),
            sampling,
            start_id=self.start_id,
            end_id=self.start_id,
            max_length=longest,
            min_length=min(decoding.min_length, longest),
            never=self.never(decoding),
        )
        return drawn

    def draw_lengths(
        self, model: Any, sources: Sequence[SourceRow], decoding: DecodingSpec, *, first_row: int
    ) -> NDArray[np.int64]:
        source, length_B = (part.to(self.device) for part in padded(sources))
        state, longest_B = model.condition(source, length_B), self.longest(sources, decoding)
        drawn = [
            sample(
                model,
                state,
                Sampling(seed=number),
                start_id=self.start_id,
                end_id=self.start_id,
                max_length=longest_B,
                min_length=decoding.min_length,
                never=self.never(decoding),
            )
            for number in range(decoding.draws)
        ]
        return np.array([[len(one.tokens) for one in row] for row in zip(*drawn, strict=True)], dtype=np.int64)
