"""The generation loop over any machine. What is needed to go on is itself a state: it can be saved and forked.

B batch, T time, V vocabulary.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from statewise.core import Machine, State
from statewise.decoding.sampling import Sampling, choose

_TAIL = 8  # tokens remembered for the decoder: more than any character or word takes


class Continuation(NamedTuple):
    """Everything a text needs to be continued exactly, here or after it was saved and loaded."""

    state: State
    token_B: Tensor  # written but not yet read by the machine
    position_B: Tensor  # tokens read and written so far: where in the stream of chance we are
    seen_BV: Tensor  # which tokens occurred, for the repetition penalty
    tail_BK: Tensor  # the last tokens, for decoding text across the seam; -1 before the beginning


@torch.no_grad()
def begin(model: Machine[Any], prompt_BT: Tensor, *, vocab: int) -> Continuation:
    """Read a prompt (all but its last token) from the initial state."""
    batch = len(prompt_BT)
    start = Continuation(
        state=model.init_state(batch),
        token_B=prompt_BT[:, 0],
        position_B=torch.zeros(batch, dtype=torch.int64, device=prompt_BT.device),
        seen_BV=torch.zeros(batch, vocab, dtype=torch.bool, device=prompt_BT.device),
        tail_BK=torch.full((batch, _TAIL), -1, dtype=torch.int64, device=prompt_BT.device),
    )
    return read(model, start, prompt_BT[:, 1:])


@torch.no_grad()
def read(model: Machine[Any], at: Continuation, more_BT: Tensor) -> Continuation:
    """Go on with given tokens instead of chosen ones, in one parallel pass."""
    if more_BT.shape[1] == 0:
        return at
    inputs_BT = torch.cat([at.token_B[:, None], more_BT[:, :-1]], dim=1)
    _, state = model(inputs_BT, at.state)
    return Continuation(
        state,
        more_BT[:, -1],
        at.position_B + more_BT.shape[1],
        at.seen_BV.scatter(1, more_BT, True),
        torch.cat([at.tail_BK, more_BT], dim=1)[:, -_TAIL:],
    )


@torch.no_grad()
def generate(
    model: Machine[Any], at: Continuation, sampling: Sampling, *, never: Sequence[int] = ()
) -> Iterator[tuple[Tensor, Continuation]]:
    """Token after token, for ever; each with the continuation that includes it. `never` are not chosen."""
    sampling.check()
    while True:
        logits_BV, state = model.step(at.token_B, at.state)
        if never:
            logits_BV[:, list(never)] = -torch.inf
        token_B = choose(logits_BV, seen_BV=at.seen_BV, position_B=at.position_B, sampling=sampling)
        at = Continuation(
            state,
            token_B,
            at.position_B + 1,
            at.seen_BV.scatter(1, token_B[:, None], True),
            torch.cat([at.tail_BK[:, 1:], token_B[:, None]], dim=1),
        )
        yield token_B, at
