"""Beam search over any machine on tokens: a language model after its prompt, or a decoder given its source.

B rows, K slots a row, N = B K, V vocabulary, S source time, L tokens written so far.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from statewise.core import State, leaves, rows
from statewise.decoding.search import Hypothesis, alignment_tap, check_limits, limits, log_probabilities, step_and_look
from statewise.models import TokenMachine
from statewise.specs import UserError

_UNSEEN = 1e-6  # the least coverage a place counts as having: alignments may leave a place at exactly nothing


@dataclass(frozen=True)
class Ranking:
    """How finished hypotheses are compared (Wu et al. 2016).

        score = log p / ((5 + length) / 6)^α + β Σ_s log min(coverage_s, 1)

    The length counts the end symbol. With α = β = 0 the score is the log probability.
    """

    alpha: float
    beta: float

    def normaliser(self, length: int) -> float:
        return float(((5 + length) / 6) ** self.alpha)

    def score(self, log_p: float, length: int, coverage_S: Tensor) -> float:
        covered = coverage_S.clamp(min=_UNSEEN, max=1).log().sum() if self.beta else 0.0
        return log_p / self.normaliser(length) + self.beta * float(covered)

    def bound(self, log_p: float, length: int, longest: int) -> float:
        """The most that a hypothesis of `length` can still reach: log p only falls, coverage costs at best nothing."""
        return max(log_p / self.normaliser(length), log_p / self.normaliser(longest))


@dataclass
class _Row:
    """One row's search: where it stands in the caller's batch, and what it has finished."""

    number: int
    longest: int
    source: int | None  # length of its source
    done: list[Hypothesis] = field(default_factory=list)

    def best(self, n: int) -> list[Hypothesis]:
        return sorted(self.done, key=lambda hypothesis: -hypothesis.score)[:n]  # equals stay as they came


@torch.no_grad()
def beam_search(
    model: TokenMachine[Any],
    state: State,
    *,
    start_id: int | Tensor,
    end_id: int | None,
    max_length: int | Tensor,
    beam: int = 5,
    length_penalty: float = 0.0,
    coverage_penalty: float = 0.0,
    n_best: int = 1,
    min_length: int = 0,
    never: Sequence[int] = (),
    align: bool = False,
    source_lengths_B: Tensor | None = None,
    decided_B: Tensor | None = None,
) -> list[list[Hypothesis]]:
    """For each row of `state` the `n_best` hypotheses that were found, the best first.

    Of all continuations of all open hypotheses the likeliest stay: `beam` of them, less one for each that has
    ended (Sutskever et al. 2014). A row is done when no open hypothesis can still rank among its best; it then leaves
    the batch. After `max_length` tokens (end symbol not counted) only the end symbol may follow; without an end
    symbol (`end_id=None`) all hypotheses have that length. Tokens in `never` are not chosen.

    `align` gives each token's weights over the source; they and `coverage_penalty` need a model with attention, and
    `source_lengths_B` where sources differ in length. `decided_B` is the log probability of what was decided before
    the first token, such as a length; it is part of every hypothesis.
    """
    batch = len(next(leaf for _, leaf in leaves(state)))
    device = next(leaf for _, leaf in leaves(state)).device
    longest_B = limits(max_length, batch, device)
    check_limits(vocab=model.vocab, end_id=end_id, never=never, min_length=min_length, longest_B=longest_B)
    _check(beam, n_best, length_penalty, coverage_penalty)
    ranking = Ranking(length_penalty, coverage_penalty)
    tap = alignment_tap(model) if align or coverage_penalty else None
    last = 0 if end_id is None else 1  # what the end symbol adds to a length

    sources = [None] * batch if source_lengths_B is None else source_lengths_B.tolist()
    every = [_Row(i, n, s) for i, (n, s) in enumerate(zip(longest_B.tolist(), sources, strict=True))]
    active = every
    token_N = torch.full((batch,), start_id, device=device) if isinstance(start_id, int) else start_id.to(device)
    log_p_BK = torch.zeros(batch, 1, dtype=torch.float64, device=device)
    if decided_B is not None:
        log_p_BK = log_p_BK + decided_B.to(log_p_BK)[:, None]
    written_BKL = token_N.new_zeros(batch, 1, 0)
    looked_BKLS: Tensor | None = None

    for length in range(int(longest_B.max()) + last):  # tokens that open hypotheses hold
        slots = log_p_BK.shape[1]
        logits_NV, state, weights_NS = step_and_look(model, token_N, state, tap)
        step_NV = log_probabilities(logits_NV)
        _forbid(step_NV, active, slots, length, end_id=end_id, never=never, min_length=min_length)
        total_BX = (log_p_BK[:, :, None] + step_NV.double().view(len(active), slots, -1)).flatten(1)
        top_BK, at_BK = total_BX.topk(min(beam, total_BX.shape[1]), dim=-1)
        parent_BK, token_BK = at_BK // model.vocab, at_BK % model.vocab

        # A finished hypothesis keeps its slot.
        free_B = torch.tensor([beam - len(row.done) for row in active], device=device)
        valid_BK = (torch.arange(top_BK.shape[1], device=device) < free_B[:, None]) & top_BK.isfinite()
        written_BKL = torch.cat([_of_parents(written_BKL, parent_BK), token_BK[:, :, None]], dim=2)
        if tap is not None:
            now_BK1S = weights_NS.view(len(active), slots, 1, -1)
            looked_BKLS = now_BK1S if looked_BKLS is None else torch.cat([looked_BKLS, now_BK1S], dim=2)
            looked_BKLS = _of_parents(looked_BKLS, parent_BK)

        if end_id is None:
            ended_BK = valid_BK & (length + 1 == longest_B[:, None])
        else:
            ended_BK = valid_BK & (token_BK == end_id)
        for b, k in ended_BK.nonzero().tolist():
            looked_LS = None if looked_BKLS is None else looked_BKLS[b, k, :, : active[b].source]
            _finish(active[b], ranking, float(top_BK[b, k]), written_BKL[b, k], looked_LS, last=last, align=align)

        log_p_BK = top_BK.masked_fill(~valid_BK | ended_BK, -torch.inf)
        most = log_p_BK.amax(1).tolist()
        stay = [
            b
            for b, row in enumerate(active)
            if most[b] > -math.inf and not _is_decided(row, ranking, most[b], length + 1 + last, n_best, last)
        ]
        if not stay:
            break
        # One selection of rows: those that continue, each from its parent.
        stay_B = torch.tensor(stay, device=device)
        open_BK = log_p_BK[stay_B].isfinite()
        parent_BK = torch.where(open_BK, parent_BK[stay_B], parent_BK[stay_B, :1])
        state = rows(state, (stay_B[:, None] * slots + parent_BK).flatten())
        token_N = torch.where(open_BK, token_BK[stay_B], 0).flatten()
        log_p_BK, written_BKL, longest_B = log_p_BK[stay_B], written_BKL[stay_B], longest_B[stay_B]
        looked_BKLS = None if looked_BKLS is None else looked_BKLS[stay_B]
        active = [active[b] for b in stay]

    for row in every:
        if not row.done:
            raise UserError(
                f"row {row.number}: nothing can be written, every continuation has probability 0",
                fix="forbid fewer tokens, or allow other lengths",
            )
    return [row.best(n_best) for row in every]


def _check(beam: int, n_best: int, length_penalty: float, coverage_penalty: float) -> None:
    if beam < 1:
        raise UserError(f"beam = {beam}, expected at least 1")
    if not 1 <= n_best <= beam:
        raise UserError(f"n_best = {n_best}, expected between 1 and beam = {beam}", fix="search with a wider beam")
    if not math.isfinite(length_penalty):
        raise UserError(f"length_penalty = {length_penalty}, expected a number; 0 for none, 0.6 to 1 are usual")
    if not 0 <= coverage_penalty < math.inf:
        raise UserError(f"coverage_penalty = {coverage_penalty}, expected 0 (none) or a positive number")


def _forbid(
    step_NV: Tensor,
    active: list[_Row],
    slots: int,
    length: int,
    *,
    end_id: int | None,
    never: Sequence[int],
    min_length: int,
) -> None:
    """Set the log probabilities of forbidden tokens to minus infinity."""
    if never:
        step_NV[:, list(never)] = -torch.inf
    if end_id is None:
        return
    if length < min_length:
        step_NV[:, end_id] = -torch.inf
    full_N = torch.tensor([row.longest == length for row in active], device=step_NV.device).repeat_interleave(slots)
    end_N = step_NV[:, end_id].clone()
    step_NV.masked_fill_(full_N[:, None], -torch.inf)
    step_NV[:, end_id] = end_N


def _of_parents(held_BKL: Tensor, parent_BK: Tensor) -> Tensor:
    return held_BKL[torch.arange(len(parent_BK), device=parent_BK.device)[:, None], parent_BK]


def _finish(
    row: _Row, ranking: Ranking, log_p: float, written_L: Tensor, looked_LS: Tensor | None, *, last: int, align: bool
) -> None:
    coverage_S = written_L.new_ones(0) if looked_LS is None else looked_LS.double().sum(0)
    tokens = tuple(written_L.tolist())[: len(written_L) - last]
    score = ranking.score(log_p, len(written_L), coverage_S)
    alignment = looked_LS[: len(tokens)].clone() if align and looked_LS is not None else None
    row.done.append(Hypothesis(tokens, score, log_p, alignment))


def _is_decided(row: _Row, ranking: Ranking, log_p: float, length: int, n_best: int, last: int) -> bool:
    """Whether no open hypothesis, at most `log_p` likely, can still rank among the best."""
    if len(row.done) < n_best:
        return False
    return ranking.bound(log_p, length, row.longest + last) <= row.best(n_best)[-1].score
