"""Attention's weights as the equation has them, although a faster kernel does the work: a lens is opened for them.

B rows, T queries, H heads, S places that are looked at.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from statewise.core import Machine, State, lens

TAP = "*weights"  # whatever looks shows its weights under a name that ends so


class Head(NamedTuple):
    """What one head does, in the mean over queries that have something to choose from."""

    layer: int
    head: int
    entropy: float  # bits
    share: float  # of the entropy of a head that looks everywhere alike
    distance: float  # places that it looks back, in the mean
    itself: float  # weight on the query's own place, on the one before it, and on the first of all
    previous: float
    first: float


class Seen(NamedTuple):
    names: tuple[str, ...]  # of the layers that look
    weights: tuple[Tensor, ...]  # of each, [B, T, H, S]
    apart: float  # the largest difference between the logits that these weights give and those of the fast kernel


@torch.no_grad()
def see(machine: Machine[Any], tokens_BT: Tensor) -> Seen:
    """Read some rows from the beginning, with and without the lens."""
    fast_BTV, _ = machine(tokens_BT, None)
    with lens(TAP) as opened:
        slow_BTV, _ = machine(tokens_BT, None)
    names = tuple(opened.names)
    weights = tuple(torch.stack([_rows(one) for one in opened.seen[name]], dim=1) for name in names)
    return Seen(names, weights, float((fast_BTV - slow_BTV).abs().max()))


def _rows(weights: Tensor) -> Tensor:
    """`[B, H, S]` of one moment; who has no heads has one."""
    return weights if weights.dim() == 3 else weights[:, None]


def describe(layer: int, weights_BTHS: Tensor) -> list[Head]:
    weights_BTHS = weights_BTHS.double()
    _, time, heads, places = weights_BTHS.shape
    back_TS = (torch.arange(time)[:, None] - torch.arange(places)[None]).clamp(min=0).to(weights_BTHS)
    at_T = torch.arange(time)
    entropy_BTH = entropy(weights_BTHS)
    most_T = torch.log2(at_T.double() + 1).to(weights_BTHS)
    found = []
    for head in range(heads):
        weights_BTS = weights_BTHS[:, :, head]
        mean_entropy = float(entropy_BTH[:, 1:, head].mean())
        found.append(
            Head(
                layer,
                head,
                mean_entropy,
                mean_entropy / float(most_T[1:].mean()),
                float((weights_BTS * back_TS).sum(-1)[:, 1:].mean()),
                float(weights_BTS[:, at_T, at_T][:, 1:].mean()),
                float(weights_BTS[:, at_T[1:], at_T[1:] - 1].mean()),
                float(weights_BTS[:, 1:, 0].mean()),
            )
        )
    return found


def entropy(weights: Tensor) -> Tensor:
    """Bits, over the last axis."""
    return -(weights * weights.clamp(min=1e-300).log2()).sum(-1)


class Look(NamedTuple):
    """One text written given another: where each written token looked."""

    weights: dict[str, Tensor]  # by the name of the layer, [T, H, S]

    def mean(self, *, layers: Sequence[int] = (), heads: Sequence[int] = ()) -> Tensor:
        """`[T, S]` over layers and heads, or over those that are named."""
        known = list(self.weights.values())
        some = [known[layer] for layer in layers] or known
        return torch.stack([(one_THS[:, list(heads)] if heads else one_THS).mean(1) for one_THS in some]).mean(0)


@torch.no_grad()
def look_along(machine: Machine[Any], state: State, x_T: Tensor, *, pattern: str) -> Look:
    """Told what it writes, one moment at a time, from the state that a source left. Several looks are averaged."""
    moments: dict[str, list[Tensor]] = {}
    for x_t in x_T:
        with lens(pattern) as opened:
            _, state = machine.step(x_t[None], state)
        for name, several in opened.seen.items():
            moments.setdefault(name, []).append(torch.stack([_rows(one)[0] for one in several]).mean(0))
    return Look({name: torch.stack(several) for name, several in moments.items()})
