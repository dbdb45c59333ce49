"""Writing until an end symbol, one hypothesis a row: greedily, or by chance through the filters of `Sampling`.

B rows, V vocabulary, S source time.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from statewise.core import State, leaves, rows
from statewise.decoding.hypothesis import (
    Hypothesis,
    alignment_tap,
    check_limits,
    limits,
    log_probabilities,
    step_and_look,
)
from statewise.decoding.sampling import Sampling, choose
from statewise.models import TokenMachine
from statewise.specs import UserError


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

    A row that has written `max_length` tokens can only end. The score is the log probability by the model itself,
    whatever the filters did to the draw.
    """
    sampling.check()
    batch = len(next(leaf for _, leaf in leaves(state)))
    device = next(leaf for _, leaf in leaves(state)).device
    longest_B = limits(max_length, batch, device)
    check_limits(vocab=model.vocab, end_id=end_id, never=never, min_length=min_length, longest_B=longest_B)
    tap = alignment_tap(model) if align else None
    token_B = torch.full((batch,), start_id, device=device) if isinstance(start_id, int) else start_id.to(device)
    seen_BV = torch.zeros(batch, model.vocab, dtype=torch.bool, device=device)
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
        token_B = choose(allowed_BV, seen_BV=seen_BV, position_B=position_B, sampling=sampling)
        seen_BV = seen_BV.scatter(1, token_B[:, None], True)
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
            state, token_B, seen_BV = _only(stay, device, state, token_B, seen_BV)
            active = [active[b] for b in stay]
    return [
        Hypothesis(tuple(tokens[i]), log_p[i], log_p[i], torch.stack(looked[i]) if looked[i] else None)
        for i in range(batch)
    ]


def greedy(
    model: TokenMachine[Any],
    state: State,
    *,
    start_id: int | Tensor,
    end_id: int | None,
    max_length: int | Tensor,
    min_length: int = 0,
    never: Sequence[int] = (),
    align: bool = False,
    source_lengths_B: Tensor | None = None,
) -> list[Hypothesis]:
    """The likeliest token at every step."""
    return sample(
        model,
        state,
        Sampling(temperature=0.0),
        start_id=start_id,
        end_id=end_id,
        max_length=max_length,
        min_length=min_length,
        never=never,
        align=align,
        source_lengths_B=source_lengths_B,
    )


def _only(stay: list[int], device: torch.device, state: Any, token_B: Tensor, seen_BV: Tensor) -> Any:
    if not stay:
        return state, token_B[:0], seen_BV[:0]
    return rows((state, token_B, seen_BV), torch.tensor(stay, device=device))
