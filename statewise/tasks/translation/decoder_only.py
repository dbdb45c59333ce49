"""Translation by one machine: it reads the source as a prompt, and goes on with the target until it ends.

B batch, S source time, T target time with the edge before it, V symbols and the end.
"""

from collections.abc import Sequence
from typing import Any, Literal, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from statewise.core import uniforms
from statewise.data import pad
from statewise.decoding import Hypothesis, Sampling, alignment_tap, decode_until_end, sample
from statewise.models import EndAsToken, EndSymbol, Terminating, build_terminating
from statewise.specs import AnyMixerSpec, DecodingSpec, Seq2SeqSpec
from statewise.tasks.loss import within
from statewise.tasks.translation.examples import Batch
from statewise.tasks.translation.sides import SourceRow
from statewise.tasks.translation.translator import Translator, search_tokens
from statewise.training import Feedback, Score, feed_tokens


@final
class DecoderOnly(Translator):
    """Both languages have one vocabulary. The edge, one symbol more, stands between source and target.

    A target that was cut has no end, but its length is known: who wants to know it beforehand is told the true one.
    """

    @property
    def model_spec(self) -> AnyMixerSpec:
        assert not isinstance(self.spec.model, Seq2SeqSpec)
        return self.spec.model

    def build(self) -> Terminating[Any]:
        vocab = self.languages.target.vocab
        return build_terminating(self.model_spec, scheme=self.spec.termination.kind, vocab=vocab, seed=self.spec.seed)

    @property
    def start_id(self) -> int:
        return self.languages.target.vocab

    def never(self, decoding: DecodingSpec) -> list[int]:
        """The vocabulary's own end symbol closes sources: no target has it."""
        return [self.languages.target.end_id, *self.unknown(decoding)]

    def most_written(self, source: int) -> int | None:
        """The source and the edge take places, where places come to an end."""
        longest = self.model_spec.longest
        return None if longest is None else longest - source - 1

    def begin(self, model: Any, batch: Batch) -> tuple[Tensor, Any]:
        summary_BD, state = model.condition(batch.source, batch.source_length_B)
        return summary_BD, model.begin(summary_BD, state, length_B=batch.whole_B)

    def feedback(self, choice: Literal["sample", "best"]) -> Feedback:
        """What is fed back while the truth goes on is a symbol of the content, whatever is thought of the end."""
        feed = feed_tokens(choice)
        return lambda outputs_BV, truth_B, uniform_B: feed(outputs_BV[:, :-1], truth_B, uniform_B)

    def total(
        self, model: Any, batch: Batch, summary_BD: Tensor | None, outputs_BTV: Tensor, smoothing: float
    ) -> Tensor:
        return self._nats(model, batch, summary_BD, outputs_BTV, smoothing).sum()

    def score(self, model: Any, batch: Batch, summary_BD: Tensor | None) -> Score:
        return lambda outputs_BTV, _: self._nats(model, batch, summary_BD, outputs_BTV)

    def _nats(
        self,
        model: Terminating[Any],
        batch: Batch,
        summary_BD: Tensor | None,
        outputs_BTV: Tensor,
        smoothing: float = 0.0,
    ) -> Tensor:
        """Where they fall, `[B, T]`; 0 past what is read of a target."""
        assert summary_BD is not None
        content_BT = batch.target_BT.clamp(min=0)
        nats_BT = model.nats(summary_BD, outputs_BTV, content_BT, batch.whole_B, smoothing=smoothing)
        return nats_BT.masked_fill(~within(batch.length_B, nats_BT.shape[1]), 0.0)

    def search(
        self, model: Any, sources: Sequence[SourceRow], decoding: DecodingSpec, *, align: bool
    ) -> list[list[Hypothesis]]:
        if align or decoding.coverage_penalty:
            alignment_tap(model)  # refuses: nothing here looks at a source
        source_BS, length_B = (part.to(self.device) for part in pad(sources))
        longest_B = self.longest(sources, decoding)
        if decoding.beam == 1 and not isinstance(model, EndSymbol):
            return self._step_by_step(model, source_BS, length_B, longest_B, decoding)
        state, decided_B = self._before_writing(model, source_BS, length_B, longest_B, shortest=decoding.min_length)
        return search_tokens(
            EndAsToken(model),
            state,
            decoding,
            end_id=model.edge,
            longest_B=longest_B,
            never=self.never(decoding),
            align=align,
            source_lengths_B=length_B,
            decided_B=decided_B,
        )

    def _before_writing(
        self,
        model: Terminating[Any],
        source_BS: Tensor,
        length_B: Tensor,
        longest_B: Tensor,
        *,
        shortest: int,
        uniform_B: Tensor | None = None,
    ) -> tuple[Any, Tensor]:
        """The state before the edge, and the log probability of what is settled by then: a length within its limits."""
        summary_BD, state = model.condition(source_BS, length_B)
        predicted_B = model.predicted_length(summary_BD, uniform_B)
        if predicted_B is not None:
            predicted_B = predicted_B.clamp(min=shortest).minimum(longest_B)
        state = model.begin(summary_BD, state, length_B=predicted_B)
        return state, model.decided(summary_BD, state)

    def _step_by_step(
        self, model: Terminating[Any], source_BS: Tensor, length_B: Tensor, longest_B: Tensor, decoding: DecodingSpec
    ) -> list[list[Hypothesis]]:
        """At every step the likelier of going on and stopping, and the likeliest symbol."""
        limits: dict[str, Any] = {"longest": longest_B, "shortest": decoding.min_length, "never": self.never(decoding)}
        written = decode_until_end(model, source_BS, length_B, **limits, seed=None)
        inside_BT = within(written.lengths_B, written.tokens_BT.shape[1])
        content_BT = written.tokens_BT.masked_fill(~inside_BT, 0)
        log_p_B = -model.loss(source_BS, length_B, content_BT, written.lengths_B).double().sum(1)
        return [
            [Hypothesis(tuple(tokens[:length]), log_p, log_p)]
            for tokens, length, log_p in zip(
                written.tokens_BT.tolist(), written.lengths_B.tolist(), log_p_B.tolist(), strict=True
            )
        ]

    def draw(
        self, model: Any, source: SourceRow, decoding: DecodingSpec, sampling: Sampling, *, longest: int
    ) -> Hypothesis:
        """Where a length comes first, it is drawn before all else; at temperature 0 it is the predicted one."""
        source_BS, length_B = (part.to(self.device) for part in pad([source]))
        longest_B, shortest = torch.tensor([longest], device=self.device), min(decoding.min_length, longest)
        uniform_B = None
        if sampling.temperature:
            uniform_B = uniforms((sampling.seed,), rows=1, times=1)[:, 0, 0].to(self.device)
        state, _ = self._before_writing(model, source_BS, length_B, longest_B, shortest=shortest, uniform_B=uniform_B)
        (drawn,) = sample(
            EndAsToken(model),
            state,
            sampling,
            start_id=model.edge,
            end_id=model.edge,
            max_length=longest_B,
            min_length=shortest,
            never=self.never(decoding),
        )
        return drawn

    def draw_lengths(
        self, model: Any, sources: Sequence[SourceRow], decoding: DecodingSpec, *, first_row: int
    ) -> NDArray[np.int64]:
        draws = decoding.draws
        parts = (*pad(sources), self.longest(sources, decoding))
        source_BS, length_B, longest_B = (part.to(self.device).repeat_interleave(draws, 0) for part in parts)
        limits: dict[str, Any] = {"longest": longest_B, "shortest": decoding.min_length, "never": self.never(decoding)}
        written = decode_until_end(model, source_BS, length_B, **limits, seed=0, first_row=first_row * draws)
        lengths: NDArray[np.int64] = written.lengths_B.view(len(sources), draws).cpu().numpy()
        return lengths
