"""Decode until an end symbol, one hypothesis a row: greedily, or sampled through the filters of `Sampling`.

`beam_search` is in `beam.py`; what both share is here. B or N rows, V vocabulary, S source time.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from statewise.core import Machine, State, leaves, lens, rows
from statewise.decoding.sampling import Sampling, choose
from statewise.models import ConditionalMachine, TokenMachine
from statewise.specs import UserError


class Hypothesis(NamedTuple):
    tokens: tuple[int, ...]  # without the end symbol
    score: float  # what hypotheses are ranked by
    log_probability: float  # by the model itself, the end symbol included
    alignment: Tensor | None = None  # [tokens, S], weights over the source


def alignment_tap(model: Machine[Any]) -> str:
    """The observed name of the model's attention weights; an error if it has none."""
    looks = model.looks if isinstance(model, ConditionalMachine) else None
    if looks is None:
        raise UserError(
            f"{type(model).__name__} looks at no source, so there are no alignments",
            fix="ask for none (align=False, coverage_penalty=0), or train a model with context = 'attention'",
        )
    return looks


def step_and_look(model: Machine[Any], token_N: Tensor, state: Any, tap: str | None) -> tuple[Tensor, Any, Tensor]:
    """One step, and its attention `[N, S]`, the mean over heads and hops; `[N, 0]` without a `tap`."""
    if tap is None:
        logits_NV, state = model.step(token_N, state)
        return logits_NV, state, logits_NV[:, :0]
    with lens(tap) as seen:
        logits_NV, state = model.step(token_N, state)
    return logits_NV, state, torch.stack([weights.mean(1) for weights in seen.seen[tap]]).mean(0)


def log_probabilities(logits_NV: Tensor) -> Tensor:
    """At least in float32; an error if any is NaN."""
    log_p_NV = logits_NV.to(torch.promote_types(logits_NV.dtype, torch.float32)).log_softmax(-1)
    if bool(log_p_NV.isnan().any()):
        raise broken_outputs()
    return log_p_NV


def broken_outputs() -> UserError:
    return UserError("the model's outputs are not numbers", fix="its weights are broken; train it again")


def check_never(never: Sequence[int], *, vocab: int) -> None:
    for token in never:
        if not 0 <= token < vocab:
            raise UserError(f"never names token {token}, but this model's vocabulary has {vocab}")
    if len(set(never)) == vocab:
        raise UserError("nothing can be written: every token is forbidden", fix="forbid fewer tokens")


def check_bias(sampling: Sampling, *, vocab: int) -> None:
    for token, _ in sampling.bias:
        if not 0 <= token < vocab:
            raise UserError(f"bias names token {token}, but this model's vocabulary has {vocab}")


def check_limits(*, vocab: int, end_id: int | None, never: Sequence[int], min_length: int, longest_B: Tensor) -> None:
    check_never(never, vocab=vocab)
    if end_id is not None and not 0 <= end_id < vocab:
        raise UserError(f"end_id names token {end_id}, but this model's vocabulary has {vocab}")
    if end_id is not None and end_id in never:
        raise UserError(f"token {end_id} is the end symbol, so it cannot be in `never`")
    if end_id is None and int(longest_B.min()) < 1:
        raise UserError("max_length = 0 without an end symbol leaves nothing to write", fix="max_length of at least 1")
    if min_length < 0 or int(longest_B.min()) < min_length:
        raise UserError(
            f"min_length = {min_length} and max_length = {int(longest_B.min())} leave no length to write",
            fix="0 <= min_length <= max_length",
        )


def limits(max_length: int | Tensor, batch: int, device: torch.device) -> Tensor:
    """`[B]`: the most tokens each row may write."""
    if isinstance(max_length, int):
        return torch.full((batch,), max_length, device=device)
    if max_length.shape != (batch,) or max_length.is_floating_point():
        raise UserError(f"max_length must be one whole number, or {batch} of them; got {list(max_length.shape)}")
    return max_length.to(device)


@torch.no_grad()
def sample(
    model: TokenMachine[Any],
    state: State,
    sampling: Sampling,
    *,
    start_id: int | Tensor,
    end_id: int | None,
    max_length: int | Tensor,
    min_length: int = 0,
    never: Sequence[int] = (),
    align: bool = False,
    source_lengths_B: Tensor | None = None,
) -> list[Hypothesis]:
    """One hypothesis for each row of `state`. Rows that have ended leave the batch.

    After `max_length` tokens a row can only end. The score is the log probability by the model itself, before the
    filters.
    """
    sampling.check()
    batch = len(next(leaf for _, leaf in leaves(state)))
    device = next(leaf for _, leaf in leaves(state)).device
    longest_B = limits(max_length, batch, device)
    check_limits(vocab=model.vocab, end_id=end_id, never=never, min_length=min_length, longest_B=longest_B)
    tap = alignment_tap(model) if align else None
    token_B = torch.full((batch,), start_id, device=device) if isinstance(start_id, int) else start_id.to(device)
    check_bias(sampling, vocab=model.vocab)
    count_BV = torch.zeros(batch, model.vocab, dtype=torch.int32, device=device)
    tokens: list[list[int]] = [[] for _ in range(batch)]
    looked: list[list[Tensor]] = [[] for _ in range(batch)]
    log_p = [0.0] * batch
    sources = [None] * batch if source_lengths_B is None else source_lengths_B.tolist()
    longest = longest_B.tolist()
    active = list(range(batch))
    while active:
        logits_BV, state, weights_BS = step_and_look(model, token_B, state, tap)
        step_BV = log_probabilities(logits_BV)
        allowed_BV = logits_BV.clone()
        if never:
            allowed_BV[:, list(never)] = -torch.inf
        if end_id is not None:
            short_B = torch.tensor([len(tokens[i]) < min_length for i in active], device=device)
            full_B = torch.tensor([len(tokens[i]) == longest[i] for i in active], device=device)
            end_B = allowed_BV[:, end_id].masked_fill(short_B, -torch.inf)
            allowed_BV = allowed_BV.masked_fill(full_B[:, None], -torch.inf)
            allowed_BV[:, end_id] = end_B
        if not bool(allowed_BV.isfinite().any(-1).all()):
            raise UserError("nothing can be written: every token is forbidden", fix="forbid fewer tokens")
        position_B = torch.tensor([len(tokens[i]) for i in active], device=device)
        token_B = choose(allowed_BV, seen_BV=count_BV > 0, count_BV=count_BV, position_B=position_B, sampling=sampling)
        count_BV.scatter_add_(1, token_B[:, None], torch.ones_like(count_BV[:, :1]))
        chosen_B = step_BV.gather(1, token_B[:, None])[:, 0]
        stay = []
        for b, (i, token, log_q) in enumerate(zip(active, token_B.tolist(), chosen_B.tolist(), strict=True)):
            log_p[i] += log_q
            if token == end_id:
                continue
            tokens[i].append(token)
            if tap is not None:
                looked[i].append(weights_BS[b, : sources[i]])
            if end_id is not None or len(tokens[i]) < longest[i]:
                stay.append(b)
        if len(stay) < len(active):
            state, token_B, count_BV = _only(stay, device, state, token_B, count_BV)
            active = [active[b] for b in stay]
    return [
        Hypothesis(tuple(tokens[i]), log_p[i], log_p[i], torch.stack(looked[i]) if looked[i] else None)
        for i in range(batch)
    ]


greedy = partial(sample, sampling=Sampling(temperature=0.0))  # the most likely token at every step


def _only(stay: list[int], device: torch.device, state: Any, token_B: Tensor, count_BV: Tensor) -> Any:
    if not stay:
        return state, token_B[:0], count_BV[:0]
    return rows((state, token_B, count_BV), torch.tensor(stay, device=device))
