"""Test-time training, one token after the other, as the equations say (the primal form).

The state is the inner model's weights. Every token makes one gradient step on its own loss; inside a mini-batch
all gradients are taken at the weights the mini-batch began with:

    W_t = W_begin - Σ_{s ≤ t in the mini-batch} η_s ∇ℓ(W_begin; k_s, v_s)         y_t = f(q_t; W_t)

So what is carried is W_begin (as its change from the learnt start W_0), the sum so far, and how many tokens are
left until the sum is applied: with these three, the sequence may be cut anywhere.

B batch, T time, H heads, K width of a head, L layers of the inner model.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from statewise.core import is_observed, observe, unroll_many
from statewise.kernels.associative_memory import Inputs, outer
from statewise.kernels.ttt.inner import InnerNorm, Weights, inner_gradient, shown


class Carried(NamedTuple):
    change: Weights  # of W_begin from W_0, [B, H, in, out] each
    pending: Weights  # Σ η ∇ℓ of this mini-batch so far
    left_B: Tensor  # tokens until `pending` is applied: mini_batch at its beginning, never 0


def read(q_BHK: Tensor, weights: Weights, norm: InnerNorm | None) -> Tensor:
    """f(q; W) for one time step."""
    r_BHK = (q_BHK[..., None, :] @ weights[0])[..., 0, :]
    if len(weights) == 2:
        r_BHK = (F.gelu(r_BHK)[..., None, :] @ weights[1])[..., 0, :]
    return shown(q_BHK, r_BHK, norm)


def ttt(
    inputs: Inputs, state: Carried, start: Weights, norm: InnerNorm | None, mini_batch: int, lengths_B: Tensor | None
) -> tuple[Tensor, Carried]:
    def step(q_BHK: Tensor, k_BHK: Tensor, v_BHK: Tensor, rate_BH: Tensor, state: Carried) -> tuple[Tensor, Carried]:
        rate_BH = observe("ttt.rate", rate_BH)
        begin = tuple(w_0 + change for w_0, change in zip(start, state.change, strict=True))
        gradient = inner_gradient(k_BHK, v_BHK, begin, norm, rows=False)
        observe("ttt.inner_loss", gradient.loss)
        pending = tuple(
            sum_so_far + outer(rate_BH[..., None] * entered, errors)
            for sum_so_far, entered, errors in zip(state.pending, gradient.inputs, gradient.errors, strict=True)
        )
        now = tuple(w - p for w, p in zip(begin, pending, strict=True))
        if is_observed():
            observe("ttt.inner_loss_after", inner_gradient(k_BHK, v_BHK, now, norm, rows=False).loss)
        squares = [(w - w_0).square().sum((-2, -1)) for w, w_0 in zip(now, start, strict=True)]
        observe("ttt.change_norm", torch.stack(squares).sum(0).sqrt())
        y_BHK = observe("ttt.y", read(q_BHK, now, norm))
        full_B = state.left_B == 1
        full_B111 = full_B.view(-1, 1, 1, 1)
        return y_BHK, Carried(
            tuple(torch.where(full_B111, c - p, c) for c, p in zip(state.change, pending, strict=True)),
            tuple(torch.where(full_B111, torch.zeros_like(p), p) for p in pending),
            torch.where(full_B, mini_batch, state.left_B - 1),
        )

    return unroll_many(step, inputs, state, lengths_B)
