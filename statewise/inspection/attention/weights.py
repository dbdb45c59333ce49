"""Attention weights as the equation has them: while a lens is open, the naive kernel runs and shows them.

B rows, T queries, H heads, S places that are attended to.
"""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from statewise.core import Machine, State, lens
from statewise.specs import UserError
from statewise.tasks import Specimen

TAP = "*weights"  # the names of attention weights end so
_POOLED = "pool.attend.weights"  # those of a row's summary, seen once for all its places


class Head(NamedTuple):
    """One head, in the mean over queries with more than one place to attend to."""

    layer: int
    head: int
    entropy: float  # bits
    share: float  # of the entropy of uniform weights
    distance: float  # to the places that it attends to
    itself: float  # weight on the query's own place, on the one before it, and on the first
    previous: float
    first: float


class Seen(NamedTuple):
    weights: dict[str, Tensor]  # of one row, by the layer's name, [T, H, S]
    apart: float  # largest difference between the outputs with these weights and those of the fast kernel
    pooled_S: Tensor | None = None  # of the summary, where that is made by attention


@torch.no_grad()
def see(machine: Machine[Any], tokens_1T: Tensor) -> Seen:
    """Read a window from the initial state, with and without the lens."""
    fast_1TV, _ = machine(tokens_1T, None)
    with lens(TAP) as opened:
        slow_1TV, _ = machine(tokens_1T, None)
    weights = {name: torch.stack([_heads(step) for step in steps]) for name, steps in opened.seen.items()}
    return Seen(weights, float((fast_1TV - slow_1TV).abs().max()))


@torch.no_grad()
def see_row(row: Specimen) -> Seen:
    """The same for a row of any task. Rows that are read backwards are turned around."""
    x_1TE = row.x_TE[None]
    fast = row.answer(row.read(row.enter(x_1TE)), x_1TE)
    z_1TI = row.enter(x_1TE)
    with lens(TAP) as opened:
        slow = row.answer(row.read(z_1TI), x_1TE)
    weights = {}
    for name, steps in opened.seen.items():
        at = None if name == _POOLED else row.seen_at(name, len(steps))
        if at is None:
            continue
        order = torch.from_numpy(np.ascontiguousarray(at - row.stretch(name).begin))
        back = torch.empty_like(order).index_copy(0, order, torch.arange(len(order)))
        weights_THS = torch.stack([_heads(step) for step in steps]).cpu()[back]
        # What is read from its end lists the places from there, too.
        weights[name] = weights_THS[..., back] if weights_THS.shape[-1] == len(back) else weights_THS
    pooled = opened.seen.get(_POOLED)
    return Seen(weights, float((fast - slow).abs().max()), None if pooled is None else pooled[0].flatten().cpu())


def _heads(step: Tensor) -> Tensor:
    """`[H, S]` of one row at one time step; without a head axis, one head."""
    return step[0] if step.dim() == 3 else step[0, None]


def describe(layer: int, weights: Sequence[Tensor], *, causal: bool = False) -> list[Head]:
    """What each head does in the mean over all queries of all rows, each `[T, H, S]`.

    `causal`: a query can attend to everything before it, and shares of entropy are weighted by the largest possible.
    Otherwise the places that a query can attend to are those with a weight.
    """
    heads = []
    for head in range(weights[0].shape[1]):
        sums, count = np.zeros(7), 0
        for weights_THS in weights:
            weights_TS = weights_THS[:, head].double().cpu()
            time, places = weights_TS.shape
            at_T, at_S = torch.arange(time), torch.arange(places)
            open_T = at_T + 1 if causal else (weights_THS > 0).any(1).sum(-1).clamp(min=1).cpu()
            able_T = open_T > 1
            if not bool(able_T.any()):
                continue
            away_TS = at_T[:, None] - at_S[None]
            entropy_T, most_T = entropy(weights_TS), open_T.double().log2()
            per_T = (
                entropy_T,
                entropy_T / most_T.clamp(min=1e-9),
                (weights_TS * (away_TS.clamp(min=0) if causal else away_TS.abs())).sum(-1),
                (weights_TS * (away_TS == 0)).sum(-1),
                (weights_TS * (away_TS == 1)).sum(-1),
                weights_TS[:, 0],
                most_T,
            )
            sums += [float(value_T[able_T].sum()) for value_T in per_T]
            count += int(able_T.sum())
        *means, most = (sums / max(count, 1)).tolist()
        if causal:
            means[1] = means[0] / most if most else 0.0
        heads.append(Head(layer, head, *means))
    return heads


def entropy(weights: Tensor) -> Tensor:
    """Bits, over the last axis."""
    return -(weights * weights.clamp(min=1e-300).log2()).sum(-1)


class CrossWeights(NamedTuple):
    """Attention of each generated token to the source."""

    weights: dict[str, Tensor]  # by the name of the layer, [T, H, S]

    def mean(self, *, layers: Sequence[int] = (), heads: Sequence[int] = ()) -> Tensor:
        """`[T, S]` over layers and heads, or over those that are named."""
        known = list(self.weights.values())
        some = [known[layer] for layer in layers] or known
        return torch.stack([(w_THS[:, list(heads)] if heads else w_THS).mean(1) for w_THS in some]).mean(0)


@torch.no_grad()
def cross_weights(machine: Machine[Any], state: State, x_T: Tensor, *, pattern: str) -> CrossWeights:
    """Read a given target step by step, from the state that a source left. Several taps in a step are averaged."""
    steps: dict[str, list[Tensor]] = {}
    for x_t in x_T:
        with lens(pattern) as opened:
            _, state = machine.step(x_t[None], state)
        for name, several in opened.seen.items():
            steps.setdefault(name, []).append(torch.stack([_heads(weights) for weights in several]).mean(0))
    return CrossWeights({name: torch.stack(several) for name, several in steps.items()})


def valid_queries(wanted: Sequence[int], length: int, *, of: str = "the window") -> list[int]:
    wrong = [query for query in wanted if not 0 <= query < length]
    if wrong:
        raise UserError(f"queries = {wrong[0]} is not a token of {of}", fix=f"0 to {length - 1}")
    return list(wanted) or list(range(length))


def refuse_unknown(**settings: tuple[Sequence[int], Collection[int]]) -> None:
    """`layers=(wanted, known)`, `heads=(wanted, known)`."""
    for name, (wanted, known) in settings.items():
        wrong = [number for number in wanted if number not in known]
        if wrong:
            raise UserError(f"{name} = {wrong[0]} is not there", fix=f"this model has {name} 0 to {max(known)}")
