"""Moments of a text at which a state is touched, and the state that the model has there.

T time.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from statewise.core import Machine, State
from statewise.inspection.text import Reading, fresh_starts
from statewise.specs import UserError, lens_setting

_CHUNK = 512
_AHEAD = 48


class Cut(NamedTuple):
    at: int  # the token that is read first after the cut
    state: State  # of one row, after all before it
    tokens_T: Tensor  # from there on: one more than is predicted


def cuts(model: Machine[Any], reading: Reading, *, places: int, ahead: int | None = None) -> list[Cut]:
    """At most so many moments, evenly spread, each with `ahead` tokens to be predicted after it.

    The model starts afresh nowhere among those, and has read some text before: as much, where there is as much.
    """
    starts = fresh_starts(model, reading)
    stops = np.append(starts[1:], len(reading))
    ahead = ahead or min(_AHEAD, (int((stops - starts).max()) - 1) // 3)
    possible = [
        at
        for start, stop in zip(starts, stops)
        for at in range(start + min(ahead, max(1, int(stop - start) // 2)), stop - ahead)
    ]
    if not possible or ahead < 3:
        longest = int((stops - starts).max())
        fewer = f", or {lens_setting('ahead', (longest - 1) // 2)}" if longest >= 9 else ""
        raise UserError(
            f"the model reads at most {longest} tokens of this text in one go: too few to read {ahead} after a cut",
            fix=f"give a longer text{fewer}",
        )
    found = []
    for one in np.unique(np.linspace(0, len(possible) - 1, places).astype(int)):
        at = int(possible[one])
        start = int(starts[np.searchsorted(starts, at, side="right") - 1])
        tokens_T = reading.tokens_T[at : at + ahead + 1].to(model.like.device)
        found.append(Cut(at, state_after(model, reading.tokens_T[start:at]), tokens_T))
    return found


@torch.no_grad()
def state_after(model: Machine[Any], tokens_T: Tensor) -> State:
    """The state of one row that has read these tokens from the beginning."""
    state: State = model.init_state(1)
    for begin in range(0, len(tokens_T), _CHUNK):
        state = model.absorb(tokens_T[None, begin : begin + _CHUNK].to(model.like.device), state)
    return state
