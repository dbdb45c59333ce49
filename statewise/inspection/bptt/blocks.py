"""What every choice of cuts does to a gradient, out of one measurement.

A text is read in K blocks. The part of the gradient that the loss in block b owes to the weights as block a used them
is `m_ab`, a ≤ b. A truncation multiplies it by what passes the boundaries between a and b: 0 at a cut, 1 elsewhere (and
1/p at a boundary that an unbiased truncation keeps with probability p). So `g = Σ_ab w_ab m_ab` for every policy that
cuts at these boundaries, and the inner products of the m_ab say all that can be asked about its bias and its spread.

T time steps, K blocks, N = K (K + 1) / 2 pairs of blocks, P parameters.
"""

import copy
from functools import partial
from itertools import combinations_with_replacement
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional as F

from statewise.core import Machine
from statewise.inspection.bptt.estimate import cost, gradient
from statewise.specs import FullTruncation


class BlockGradients(NamedTuple):
    products_NN: (
        Tensor  # inner products of the m_ab in units of the full gradient's squared norm; (a, b) in order of a, b
    )
    held_bytes: tuple[int, ...]  # that a backward pass over 1, 2, … K blocks keeps
    loss: float  # nats per token


def block_gradients(machine: Machine[Any], inputs_T: Tensor, targets_T: Tensor, *, block: int) -> BlockGradients:
    """Of the mean loss of one row, read in blocks of `block` tokens from the initial state."""
    assert len(inputs_T) % block == 0
    terms_NP, loss = _terms(copy.deepcopy(machine).double().eval(), inputs_T, targets_T, block)
    size = float(terms_NP.sum(0).square().sum())
    known = [*machine.parameters(), inputs_T, targets_T]
    held = tuple(
        cost(
            partial(gradient, machine, inputs_T[None, :stop], targets_T[None, :stop], FullTruncation(), key=(0,)),
            known=known,
        ).held_bytes
        for stop in range(block, len(inputs_T) + 1, block)
    )
    return BlockGradients(terms_NP @ terms_NP.T / size, held, loss)


def _terms(machine: Machine[Any], inputs_T: Tensor, targets_T: Tensor, block: int) -> tuple[Tensor, float]:
    """The m_ab `[N, P]`: each block reads with its own copy of the weights, so that their gradients are apart."""
    blocks = len(inputs_T) // block
    weights = {name: p for name, p in machine.named_parameters() if p.requires_grad}
    copies = [{name: p.detach().clone().requires_grad_() for name, p in weights.items()} for _ in range(blocks)]
    state, losses = machine.init_state(1), []
    with torch.enable_grad():
        for number, own in enumerate(copies):
            times = slice(number * block, (number + 1) * block)
            logits_BTV, state = functional_call(machine, own, (inputs_T[None, times], state))
            losses.append(F.cross_entropy(logits_BTV[0], targets_T[times], reduction="sum") / len(inputs_T))
        terms = {}
        for b, loss in enumerate(losses):
            used = [p for own in copies[: b + 1] for p in own.values()]
            parts = torch.autograd.grad(loss, used, retain_graph=True, materialize_grads=True)
            for a, part_P in enumerate(torch.cat([part.flatten() for part in parts]).chunk(b + 1)):
                terms[a, b] = part_P
    pairs = combinations_with_replacement(range(blocks), 2)
    return torch.stack([terms[pair] for pair in pairs]), float(torch.stack(losses).sum().detach())
