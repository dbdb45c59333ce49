"""From sources to hypotheses, with any conditional machine.

B batch, T target time, V vocabulary.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from statewise.data import pad
from statewise.decoding import Hypothesis, beam_search, greedy
from statewise.models import ConditionalMachine
from statewise.specs import DecodingSpec, MixerSpec, TransformerSpec
from statewise.tasks.loss import categorical_loss
from statewise.tasks.translation.examples import Ids, Languages, Rows, batches_of

_TOKENS = 1 << 13  # of sources and open hypotheses together, in one batch


class Writer(NamedTuple):
    """A model with its languages, and how it is to search."""

    model: ConditionalMachine[Any]
    languages: Languages
    decoding: DecodingSpec
    most: int | None  # tokens that the model can write at all
    device: torch.device

    def greedy(self, sources: Sequence[Ids], *, poll: Callable[[], None] = lambda: None) -> list[str]:
        """The likeliest token at every step: the quickest translation there is."""
        plain = self._replace(decoding=self.decoding.model_copy(update={"beam": 1, "n_best": 1, "coverage_penalty": 0}))
        return [self.text(found[0]) for found in plain.search(sources, poll=poll)]

    @torch.no_grad()
    def search(
        self, sources: Sequence[Ids], *, align: bool = False, poll: Callable[[], None] = lambda: None
    ) -> list[list[Hypothesis]]:
        """For each source its best hypotheses. Rows are searched in order of length and given back in theirs."""
        found: list[list[Hypothesis]] = [[] for _ in sources]
        for index in batches_of([len(source) for source in sources], tokens=max(1, _TOKENS // self.decoding.beam)):
            poll()
            for i, hypotheses in zip(index, self._batch([sources[i] for i in index], align)):
                found[i] = hypotheses
        return found

    def _batch(self, sources: Sequence[Ids], align: bool) -> list[list[Hypothesis]]:
        source_BS, length_B = (part.to(self.device) for part in pad(sources))
        spec, target = self.decoding, self.languages.target
        longest_B = torch.tensor([self._longest(len(source)) for source in sources], device=self.device)
        state = self.model.condition(source_BS, length_B)
        never = [] if spec.unknown or target.unknown_id is None else [target.unknown_id]
        if spec.beam == 1 and not spec.coverage_penalty:
            one = greedy(
                self.model,
                state,
                start_id=target.end_id,
                end_id=target.end_id,
                max_length=longest_B,
                min_length=spec.min_length,
                never=never,
                align=align,
                source_lengths_B=length_B,
            )
            return [[hypothesis] for hypothesis in one]
        return beam_search(
            self.model,
            state,
            start_id=target.end_id,
            end_id=target.end_id,
            max_length=longest_B,
            beam=spec.beam,
            length_penalty=spec.length_penalty,
            coverage_penalty=spec.coverage_penalty,
            n_best=spec.n_best,
            min_length=spec.min_length,
            never=never,
            align=align,
            source_lengths_B=length_B,
        )

    def _longest(self, source: int) -> int:
        """The end symbol of the source is none of its words."""
        wanted = math.ceil(self.decoding.max_ratio * (source - 1)) + self.decoding.extra
        return wanted if self.most is None else min(wanted, self.most)

    def text(self, hypothesis: Hypothesis) -> str:
        return self.languages.target.decode(hypothesis.tokens)


def most_written(decoder: MixerSpec) -> int | None:
    """Learned positions come to an end, and the end symbol takes one."""
    if isinstance(decoder, TransformerSpec) and decoder.position == "learned":
        return decoder.context - 1
    return None


class Told(NamedTuple):
    """What the true targets cost a model that is told the truth at every step."""

    nats: float
    tokens: int  # end symbols included

    @property
    def nats_per_token(self) -> float:
        return self.nats / self.tokens


@torch.no_grad()
def told(
    model: ConditionalMachine[Any],
    rows: Rows,
    *,
    end_id: int,
    device: torch.device,
    poll: Callable[[], None] = lambda: None,
) -> Told:
    nats, tokens = 0.0, 0
    for index in batches_of(rows.lengths, tokens=_TOKENS):
        poll()
        batch = rows.batch(index, end_id).to(device)
        state = model.condition(batch.source_BS, batch.source_length_B)
        logits_BTV, _ = model(batch.input_BT, state)
        nats += float(categorical_loss(logits_BTV, batch.target_BT).total)
        tokens += int(batch.length_B.sum())
    return Told(nats, tokens)
