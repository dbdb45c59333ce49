"""The Markov model (1913): the state is the last few symbols, and what follows them was counted.

B batch, T time, K order, V vocabulary, C contexts, G pairs of a context and a symbol that followed it.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple, final

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from statewise.core import check_input, is_observed, observe, one_step, past_end, state_type, unroll
from statewise.kernels import extend, ngram
from statewise.kernels.ngram import Discounts, Tables, batched, naive, tables
from statewise.layers import check_tokens
from statewise.models.token_machine import CountingMachine

Smoothing = Literal["kneser-ney", "modified", "add-k"]


@state_type
class MarkovState(NamedTuple):
    last_BK: Tensor  # the newest symbol last; V, which is no symbol, before the beginning


@final
class Markov(CountingMachine[MarkovState]):
    """`P(x_{t+1} | x_{t-K+1}, …, x_t)` from counts: K is the `order`. The logits are log-probabilities.

    `smoothing`: "kneser-ney" interpolates all orders with one `discount` (Kneser and Ney 1995), "modified" with
    three an order that are estimated from the counts (Chen and Goodman 1999), "add-k" adds `add` to every count.
    `lowest="counts"` ends at the continuation counts of single symbols and leaves none for what was never seen.
    """

    key_C: Tensor
    start_C: Tensor
    symbol_G: Tensor
    count_G: Tensor
    total_C: Tensor
    kinds_C3: Tensor

    def __init__(
        self,
        vocab: int,
        *,
        order: int = 5,
        smoothing: Smoothing = "kneser-ney",
        discount: float = 0.75,
        add: float = 0.01,
        lowest: Literal["uniform", "counts"] = "uniform",
    ) -> None:
        super().__init__()
        self._vocab = vocab
        self.order = order
        self.smoothing: Smoothing = smoothing
        self.discount = discount
        self.add = add
        self.lowest: Literal["uniform", "counts"] = lowest
        self.discounts: Discounts = ()
        self._install(tables.empty())

    @property
    def vocab(self) -> int:
        return self._vocab

    def count(self, tokens: ArrayLike, *, end_id: int | None = None) -> None:
        counted = ngram.count(np.asarray(tokens), vocab=self.vocab, order=self.order, end_id=end_id)
        self._install({name: torch.from_numpy(array) for name, array in counted._asdict().items()})

    def adopt(self, tensors: Mapping[str, Tensor]) -> None:
        tables.check(tensors, vocab=self.vocab, order=self.order)
        self._install(tensors)

    def _install(self, parts: Mapping[str, Tensor]) -> None:
        made = tables.complete({name: part.to(self.like.device) for name, part in parts.items()})
        for name, tensor in made._asdict().items():
            # What follows from the counts is made again when they are loaded.
            self.register_buffer(name, tensor, persistent=name in parts)
        self.discounts = self._discounts(made)

    def _discounts(self, made: Tables) -> Discounts:
        discounts = tables.one_discount(self.discount, order=self.order)
        if self.smoothing == "modified":
            discounts = tables.estimated(made, vocab=self.vocab, order=self.order, otherwise=self.discount)
        return discounts if self.lowest == "uniform" else ((0.0, 0.0, 0.0), *discounts[1:])

    def tables(self) -> Tables:
        return Tables(self.key_C, self.start_C, self.symbol_G, self.count_G, self.total_C, self.kinds_C3)

    def init_state(self, batch: int) -> MarkovState:
        return MarkovState(torch.full((batch, self.order), self.vocab, device=self.like.device))

    def forward(
        self, tokens_BT: Tensor, state: MarkovState | None = None, lengths_B: Tensor | None = None
    ) -> tuple[Tensor, MarkovState]:
        check_input(tokens_BT, lengths_B)
        check_tokens(tokens_BT, self.vocab)  # an unknown token would be read as another context
        state = state or self.init_state(tokens_BT.shape[0])
        if is_observed():
            return unroll(self._equation, tokens_BT, state, lengths_B)
        all_BL, last_BK = extend(state.last_BK, tokens_BT, lengths_B)
        context_BTK = all_BL.unfold(1, self.order, 1)[:, 1:]
        dtype = torch.float64 if self.like.dtype == torch.float64 else torch.float32
        p_NV = self._probabilities(context_BTK.reshape(-1, self.order), dtype)
        logits_BTV = p_NV.log().to(self.like.dtype).view(*tokens_BT.shape, self.vocab)
        return past_end(logits_BTV, lengths_B), MarkovState(last_BK)

    def _probabilities(self, context_NK: Tensor, dtype: torch.dtype) -> Tensor:
        if self.smoothing == "add-k":
            return batched.add_k(context_NK, self.tables(), self.add, vocab=self.vocab, dtype=dtype)
        return batched.kneser_ney(context_NK, self.tables(), self.discounts, vocab=self.vocab, dtype=dtype)

    def step(self, token_B: Tensor, state: MarkovState) -> tuple[Tensor, MarkovState]:
        return one_step(self.forward, token_B, state)

    def _equation(self, token_B: Tensor, state: MarkovState) -> tuple[Tensor, MarkovState]:
        """One time step, row by row, with observations."""
        last_BK = torch.cat([state.last_BK[:, 1:], token_B[:, None]], dim=1)
        made, rows, known = self.tables(), [], []
        for context in last_BK.tolist():
            if self.smoothing == "add-k":
                rows.append(naive.add_k(context, made, self.add, vocab=self.vocab))
            else:
                rows.append(naive.kneser_ney(context, made, self.discounts, vocab=self.vocab))
            lengths = range(self.order, 0, -1)
            known.append(next((k for k in lengths if naive.find(context[-k:], made, vocab=self.vocab) is not None), 0))
        observe("markov.known", torch.tensor(known, device=last_BK.device))  # length of the longest context seen before
        p_BV = observe("markov.probabilities", torch.stack(rows))
        return p_BV.log().to(self.like.dtype), MarkovState(last_BK)
