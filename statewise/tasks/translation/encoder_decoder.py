"""Translation by two machines: one reads the source, the other writes the target given what was read.

B batch, S source time, T target time, V vocabulary.
"""

from collections.abc import Sequence
from typing import Any, Literal, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from statewise.decoding import Hypothesis, Sampling, sample
from statewise.models import ConditionalMachine, build_seq2seq
from statewise.specs import DecodingSpec, ForcingSpec, Seq2SeqSpec, TeacherForcing
from statewise.tasks.loss import categorical_loss
from statewise.tasks.translation.examples import Batch
from statewise.tasks.translation.sides import SourceRow, padded
from statewise.tasks.translation.translator import TEACHER, Translator, search_tokens
from statewise.training import ExposureGap, exposure_gap, feed_tokens, forced_forward, truth_probability


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
        unknown_id = self.languages.target.unknown_id
        return [] if decoding.unknown or unknown_id is None else [unknown_id]

    def most_written(self, source: int) -> int | None:
        """The end symbol takes a place, where places come to an end."""
        longest = self.model_spec.decoder.longest
        return None if longest is None else longest - 1

    def loss(
        self,
        model: Any,
        batch: Batch,
        *,
        forcing: ForcingSpec = TEACHER,
        step: int = 0,
        first_row: int = 0,
        smoothing: float = 0.0,
    ) -> Tensor:
        # What follows a row's end is passed over by the loss, so no state needs to be held there.
        logits_BTV, _ = forced_forward(
            model,
            batch.input_BT,
            model.condition(batch.source, batch.source_length_B),
            truth_probability=truth_probability(forcing, step),
            key=(self.spec.seed, step),
            feedback=None if isinstance(forcing, TeacherForcing) else feed_tokens(forcing.choice),
            first_row=first_row,
        )
        return categorical_loss(logits_BTV, batch.target_BT, smoothing=smoothing).total

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

    def exposure_gap(self, model: Any, batch: Batch, *, choice: Literal["sample", "best"], seed: int) -> ExposureGap:
        with torch.no_grad():
            state = model.condition(batch.source, batch.source_length_B)
        return exposure_gap(
            model,
            batch.input_BT,
            batch.target_BT,
            state,
            lengths_B=batch.length_B,
            feedback=feed_tokens(choice),
            seed=seed,
        )
