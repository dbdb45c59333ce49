"""What becomes of a model when its state is touched: what the text then costs it, and what it then writes.

N rows (each a state of its own), T time, V vocabulary.
"""

from collections.abc import Sequence
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F

from statewise.core import Machine, State, concat, lens
from statewise.decoding import Continuation, Sampling, extend
from statewise.inspection.intervene.address import Address, put, refuse_half_a_list, zeroed

S = TypeVar("S", bound=State)

Act = Literal["zero", "forget", "swap", "freeze", "silence"]

_ROWS_AT_ONCE = 64


def touched(model: Machine[S], state: S, address: Address, act: Act, *, other: S | None = None) -> S:
    """`state` after the act. To `freeze` and to `silence` are done while reading on: nothing changes yet."""
    batch = len(next(iter(_leaf_list(state))))
    match act:
        case "zero":
            return zeroed(state, address)
        case "forget":
            refuse_half_a_list(model.init_state(1), address)
            return put(state, model.init_state(batch), address)
        case "swap":
            assert other is not None, "a swap needs another state"
            refuse_half_a_list(model.init_state(1), address)
            return put(state, other, address)
        case "freeze":
            refuse_half_a_list(model.init_state(1), address)
            return state
        case "silence":
            return state


def _leaf_list(state: State) -> list[Tensor]:
    return [state] if isinstance(state, Tensor) else [leaf for part in state for leaf in _leaf_list(part)]


@torch.no_grad()
def cost(model: Machine[Any], state: State, tokens_NT: Tensor, *, frozen: Address | None = None) -> Tensor:
    """Nats of each token but the first of every row, read on from `state`: `[N, T - 1]`.

    What is `frozen` is put back after every token: the model reads on, and that part of it learns nothing.
    """
    if frozen is None:
        logits_NTV, _ = model(tokens_NT[:, :-1], state)
    else:
        moments = []
        for token_N in tokens_NT[:, :-1].unbind(1):
            logits_NV, after = model.step(token_N, state)
            state = put(after, state, frozen)
            moments.append(logits_NV)
        logits_NTV = torch.stack(moments, dim=1)
    return F.cross_entropy(logits_NTV.flatten(0, 1), tokens_NT[:, 1:].flatten(), reduction="none").view(
        len(tokens_NT), -1
    )


@torch.no_grad()
def costs(model: Machine[Any], states: Sequence[State], tokens_T: Tensor) -> Tensor:
    """The same text read on from each of these states (of one row each), side by side: `[N, T - 1]`."""
    found = []
    for begin in range(0, len(states), _ROWS_AT_ONCE):
        part = concat(list(states[begin : begin + _ROWS_AT_ONCE]))
        count = min(_ROWS_AT_ONCE, len(states) - begin)
        found.append(cost(model, part, tokens_T.expand(count, -1)))
    return torch.cat(found)


@torch.no_grad()
def silenced(model: Machine[Any], state: State, tokens_NT: Tensor, address: Address) -> Tensor:
    """`cost` while an observed value (a gate, the weights of a head), or one entry along an axis of it, is 0."""

    def nothing(name: str, value: Tensor) -> Tensor:
        return torch.zeros_like(value) if address.axis is None else _without(value, address.part(name, value))

    with lens(address.path, edit=nothing):
        return cost(model, state, tokens_NT)


def _without(value: Tensor, part: tuple[slice | int, ...]) -> Tensor:
    changed = value.clone()
    changed[part] = 0
    return changed


@torch.no_grad()
def observed_names(model: Machine[Any], state: State, token: Tensor) -> list[str]:
    """What can be silenced: every name that the model shows while it reads one token."""
    with lens() as seen:
        model.step(token, state)
    return seen.names


@torch.no_grad()
def continued(
    model: Machine[Any],
    state: State,
    token: int,
    *,
    vocab: int,
    tokens: int,
    sampling: Sampling,
    never: Sequence[int] = (),
) -> list[int]:
    """What it writes after having read `token` from this state. The same `sampling` draws the same chances."""
    device = model.like.device
    at = Continuation(
        state=state,
        token_B=torch.tensor([token], device=device),
        position_B=torch.zeros(1, dtype=torch.int64, device=device),
        seen_BV=torch.zeros(1, vocab, dtype=torch.bool, device=device),
        tail_BK=torch.full((1, 8), -1, dtype=torch.int64, device=device),
    )
    written_BT, _ = extend(model, at, sampling, tokens=tokens, never=never)
    return [int(one) for one in written_BT[0]]


@torch.no_grad()
def divergence(model: Machine[Any], one: State, other: State, tokens_T: Tensor) -> Tensor:
    """Of two states reading on the same text: KL(one‖other) of what they expect next, nats at each moment `[T]`."""
    both, _ = model(tokens_T.expand(2, -1), concat([one, other]))
    log_p, log_q = torch.log_softmax(both.double(), dim=-1)
    found: Tensor = (log_p.exp() * (log_p - log_q)).sum(-1)
    return found
