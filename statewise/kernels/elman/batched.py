"""Elman's recurrence with its own backward, for the CPU: what need not be done step by step is done at once.

Per step remain one product, one activation, and on the way back one slope and one product. The gradients of both
matrices and of the bias are single products over all time steps, where autograd would add one for each. The derivation
is in `kernels/README.md`.

B batch, T time, I input width, D width, N time steps of all rows.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from statewise.kernels.cpu import by_expm1, tanh_of_half_, threads_for
from statewise.kernels.elman.naive import Activation, ElmanWeights, elman_step
from statewise.kernels.gradients import again, wants_equation
from statewise.kernels.packed_sequence import Rows, before_and_after, begin_with, read_packed, states_before


class _Recurrence(torch.autograd.Function):
    """All states `h_t = φ(W x_t + U h_{t-1} + b)`, from all inputs, the first state and the weights."""

    @staticmethod
    def forward(
        ctx: Any,
        x_NI: Tensor,
        h_BD: Tensor,
        w_DI: Tensor,
        u_DD: Tensor,
        b_D: Tensor,
        activation: Activation,
        rows: Rows,
    ) -> Tensor:
        fast = activation == "tanh" and by_expm1(rows[0] * len(u_DD), x_NI.dtype)
        factor = 2 if fast else 1
        activate_ = torch.tanh_ if activation == "tanh" else torch.relu_
        states_ND = begin_with(h_BD, len(x_NI), rows)
        # Where a state will stand, the projected input waits for the state before it.
        torch.addmm(b_D, x_NI, w_DI.mT, beta=factor, alpha=factor, out=states_ND[rows[0] :])
        u_T = u_DD.mT
        one = x_NI.new_tensor(1.0)

        with threads_for(rows[0] * u_DD.numel()):
            for before_BD, after_BD in before_and_after(states_ND, rows):
                after_BD.addmm_(before_BD, u_T, alpha=factor)
                if fast:
                    tanh_of_half_(after_BD, one)
                else:
                    activate_(after_BD)
        ctx.save_for_backward(x_NI, h_BD, w_DI, u_DD, b_D, states_ND)
        ctx.activation, ctx.rows = activation, rows
        return states_ND[rows[0] :]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (dy_ND,) = gradients
        *inputs, states_ND = ctx.saved_tensors
        x_NI, h_BD, w_DI, u_DD, _ = inputs
        rows: Rows = ctx.rows
        if wants_equation(dy_ND):
            return *again(lambda: (_equation(inputs, ctx.activation, rows),), inputs, gradients), None, None
        slope_ = _tanh_slope_ if ctx.activation == "tanh" else _relu_slope_
        # Room for the gradients of all states; past the activation, each becomes that of its input.
        d_ND = begin_with(torch.zeros_like(h_BD), len(dy_ND), rows)
        d_ND[rows[0] :] = dy_ND

        states = states_ND[rows[0] :].split_with_sizes(rows)
        steps = zip(before_and_after(d_ND, rows), states, strict=True)
        with threads_for(rows[0] * u_DD.numel()):
            for (dh_before_BD, d_BD), state_BD in reversed(list(steps)):
                slope_(d_BD, state_BD)
                dh_before_BD.addmm_(d_BD, u_DD)
        dh_BD = torch.zeros_like(h_BD)
        dh_BD[: rows[0]] = d_ND[: rows[0]]
        da_ND = d_ND[rows[0] :]
        wanted_x, _, wanted_w, wanted_u, *_ = ctx.needs_input_grad
        return (
            da_ND @ w_DI if wanted_x else None,
            dh_BD,
            da_ND.mT @ x_NI if wanted_w else None,
            da_ND.mT @ states_before(states_ND, rows) if wanted_u else None,
            da_ND.sum(0),
            None,
            None,
        )


def _equation(inputs: Sequence[Tensor], activation: Activation, rows: Rows) -> Tensor:
    x_NI, h_BD, w_DI, u_DD, b_D = inputs
    weights = ElmanWeights(w_DI, u_DD, b_D, activation)
    states = []
    for a_BD in F.linear(x_NI, w_DI, b_D).split_with_sizes(rows):
        h_BD = elman_step(a_BD, h_BD[: len(a_BD)], weights)
        states.append(h_BD)
    return torch.cat(states)


def _tanh_slope_(d: Tensor, h: Tensor) -> None:
    torch.ops.aten.tanh_backward.grad_input(d, h, grad_input=d)


def _relu_slope_(d: Tensor, h: Tensor) -> None:
    torch.ops.aten.threshold_backward.grad_input(d, h, 0, grad_input=d)


def elman_packed(x_NI: Tensor, h_BD: Tensor, weights: ElmanWeights, rows: Rows) -> Tensor:
    """All states, where rows lie as `kernels/packed_sequence.py` says and at least one time step is read.

    Autocast changes nothing here: the whole layer stays in the weights' own precision.
    """
    with torch.autocast("cpu", enabled=False):
        states_ND: Tensor = _Recurrence.apply(  # type: ignore[no-untyped-call]  # torch leaves it untyped
            x_NI.to(weights.u_DD.dtype), h_BD, weights.w_DI, weights.u_DD, weights.b_D, weights.activation, rows
        )
    return states_ND


def elman(x_BTI: Tensor, h_BD: Tensor, weights: ElmanWeights, lengths_B: Tensor | None) -> tuple[Tensor, Tensor]:
    return read_packed(elman_packed, x_BTI, h_BD, weights, lengths_B)
