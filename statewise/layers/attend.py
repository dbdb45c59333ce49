"""The attention model of the survey: features become keys and values, a query looks at them, a context results.

    e = score(q, K)      a = alignment(e)      c = Σ a_s v_s

B batch, T queries, S source positions, Q query width, K key width, V value width, H heads.
"""

import math
from typing import NamedTuple, final

import torch
from torch import Tensor, nn

from statewise.core import Described, observe, scope, state_type
from statewise.layers.alignment import Alignment
from statewise.layers.linear import make_linear
from statewise.layers.score import Score


@state_type
class Memory(NamedTuple):
    """What is left of a source: made once, looked at by every query. It is a state, so beams reorder it."""

    prepared_BSA: Tensor  # keys, as the score prepared them
    values_BSV: Tensor
    length_B: Tensor


@final
class Attend(Described):
    """One look, or several: with `hops` the query of the next look is the last one plus what it found."""

    def __init__(self, score: Score, alignment: Alignment, *, hops: int = 1) -> None:
        super().__init__()
        self.score = score
        self.alignment = alignment
        self.hops = hops

    def remember(self, keys_BSK: Tensor, values_BSV: Tensor, lengths_B: Tensor) -> Memory:
        return Memory(self.score.prepare(keys_BSK), values_BSV, lengths_B)

    def forward(self, query_BTQ: Tensor, memory: Memory, position_BT: Tensor) -> Tensor:
        """The context `[B, T, V]`. The weights are shown to a lens as `attend.weights`."""
        context_BTV = query_BTQ
        for hop in range(self.hops):
            if hop > 0:
                query_BTQ = query_BTQ + context_BTV
            scores_BTS = self.score(query_BTQ, memory.prepared_BSA)
            weights_BTS = self.alignment(scores_BTS, query_BTQ, position_BT, memory.length_B)
            weights_BTS = observe("attend.weights", weights_BTS)
            context_BTV = weights_BTS @ memory.values_BSV
        return context_BTV

    def __call__(self, query_BTQ: Tensor, memory: Memory, position_BT: Tensor) -> Tensor:
        context_BTV: Tensor = super().__call__(query_BTQ, memory, position_BT)
        return context_BTV


@final
class Pool(Described):
    """One vector for a whole row: a learned query looks at all its positions once (Yang et al. 2016)."""

    def __init__(self, attend: Attend, *, width: int, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.attend = attend
        self.query_Q = nn.Parameter(torch.empty(width))
        nn.init.normal_(self.query_Q, std=1 / math.sqrt(width), generator=generator)

    def forward(self, y_BSV: Tensor, lengths_B: Tensor) -> Tensor:
        """`[B, V]`, 0 for an empty row. The weights are shown to a lens as `pool.attend.weights`."""
        query_B1Q = self.query_Q.repeat(len(y_BSV), 1, 1)
        with scope("pool"):
            memory = self.attend.remember(y_BSV, y_BSV, lengths_B)
            return self.attend(query_B1Q, memory, torch.zeros_like(lengths_B)[:, None])[:, 0]

    def __call__(self, y_BSV: Tensor, lengths_B: Tensor) -> Tensor:
        summary_BV: Tensor = super().__call__(y_BSV, lengths_B)
        return summary_BV


@final
class Looks(nn.Module):
    """Several looks side by side, each in a narrower space of its own, put together by one more map."""

    def __init__(
        self,
        looks: list[Attend],
        *,
        query_width: int,
        key_width: int,
        value_width: int,
        width: int,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        heads = len(looks)
        self.looks = nn.ModuleList(looks)
        self.query = make_linear(query_width, heads * width, bias=False, generator=generator)
        self.key = make_linear(key_width, heads * width, bias=False, generator=generator)
        self.value = make_linear(value_width, heads * width, bias=False, generator=generator)
        self.out = make_linear(heads * width, value_width, bias=False, generator=generator)

    def remember(self, keys_BSK: Tensor, values_BSV: Tensor, lengths_B: Tensor) -> tuple[Memory, ...]:
        keys = self.key(keys_BSK).chunk(len(self.looks), dim=-1)
        values = self.value(values_BSV).chunk(len(self.looks), dim=-1)
        return tuple(
            look.remember(key, value, lengths_B)  # type: ignore[operator]  # a ModuleList forgets what it holds
            for look, key, value in zip(self.looks, keys, values, strict=True)
        )

    def forward(self, query_BTQ: Tensor, memory: tuple[Memory, ...], position_BT: Tensor) -> Tensor:
        queries = self.query(query_BTQ).chunk(len(self.looks), dim=-1)
        contexts = [
            look(query, part, position_BT) for look, query, part in zip(self.looks, queries, memory, strict=True)
        ]
        y_BTV: Tensor = self.out(torch.cat(contexts, dim=-1))
        return y_BTV
