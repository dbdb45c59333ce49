"""The scan with a gradient that is a scan itself, in as few serial steps as pay.

Time is cut into N chunks of C time steps. All chunks are scanned side by side from zero, C steps; the state is
carried from chunk to chunk, N steps; what a chunk began with is then added to each of its time steps, decayed.
With C = √T that is about 2√T serial steps in place of T, for twice the arithmetic. A CPU whose one step is
large enough already gains nothing from that, so there the chunk is all of T; what is saved is the graph.
Nothing but products and sums of what the equation has: no quotient, no logarithm, so gates may be 0 and
inputs of any sign.

B batch, T time, D width, N chunks, C time steps in a chunk.
"""

import math
from typing import Any

import torch
from torch import Tensor

from statewise.kernels.gradients import is_many
from statewise.kernels.scan import naive
from statewise.kernels.time_axis import in_chunks, past_end

LARGE_STEP = 1024  # numbers in one step, above which a CPU is busy with it; benchmarks/scan.py


def scan(a_BTD: Tensor, b_BTD: Tensor, h_BD: Tensor, lengths_B: Tensor | None) -> tuple[Tensor, Tensor]:
    if lengths_B is not None:
        a_BTD, b_BTD = past_end(a_BTD, lengths_B, 1.0), past_end(b_BTD, lengths_B)
    y_BTD: Tensor = _Scan.apply(a_BTD, b_BTD, h_BD, False)  # type: ignore[no-untyped-call]  # torch leaves it untyped
    after_BD = y_BTD[:, -1]
    return y_BTD if lengths_B is None else past_end(y_BTD, lengths_B), after_BD


class _Scan(torch.autograd.Function):
    """`h_t = a_t · h_{t-1} + b_t`, or from the end, `h_t = a_t · h_{t+1} + b_t`, if `backwards`.

    With g_t = dy_t + a_{t+1} · g_{t+1}, a scan in the other direction:
    da_t = g_t · h_{t-1}, db_t = g_t, dh_0 = a_1 · g_1.
    """

    @staticmethod
    def forward(ctx: Any, a_BTD: Tensor, b_BTD: Tensor, h_BD: Tensor, backwards: bool) -> Tensor:
        if h_BD.device.type == "cpu" and h_BD.numel() >= LARGE_STEP:
            y_BTD = _one_by_one(a_BTD, b_BTD, h_BD, backwards)
        elif backwards:
            y_BTD = _in_chunks(a_BTD.flip(1), b_BTD.flip(1), h_BD).flip(1)
        else:
            y_BTD = _in_chunks(a_BTD, b_BTD, h_BD)
        ctx.save_for_backward(a_BTD, h_BD, y_BTD)
        ctx.backwards = backwards
        return y_BTD

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        (dy_BTD,) = gradients
        a_BTD, h_BD, y_BTD = ctx.saved_tensors
        first = -1 if ctx.backwards else 0
        nothing_BD = torch.zeros_like(h_BD)
        later_BTD = _before(a_BTD, nothing_BD, not ctx.backwards)
        # Its own `apply`, so that the gradient can be differentiated again. It cannot write to several tensors at once.
        run = _equation if is_many(dy_BTD) else _Scan.apply
        g_BTD = run(later_BTD, dy_BTD, nothing_BD, not ctx.backwards)
        return g_BTD * _before(y_BTD, h_BD, ctx.backwards), g_BTD, a_BTD[:, first] * g_BTD[:, first], None


def _equation(a_BTD: Tensor, b_BTD: Tensor, h_BD: Tensor, backwards: bool) -> Tensor:
    if backwards:
        return naive.scan(a_BTD.flip(1), b_BTD.flip(1), h_BD, None)[0].flip(1)
    return naive.scan(a_BTD, b_BTD, h_BD, None)[0]


def _before(x_BTD: Tensor, start_BD: Tensor, backwards: bool) -> Tensor:
    """At t, what stands one time step earlier in the direction of the scan."""
    if backwards:
        return torch.cat([x_BTD[:, 1:], start_BD[:, None]], dim=1)
    return torch.cat([start_BD[:, None], x_BTD[:, :-1]], dim=1)


def _one_by_one(a_BTD: Tensor, b_BTD: Tensor, h_BD: Tensor, backwards: bool) -> Tensor:
    y_BTD = torch.empty_like(b_BTD)
    steps = list(zip(a_BTD.unbind(1), b_BTD.unbind(1), y_BTD.unbind(1), strict=True))
    for a_BD, b_BD, y_BD in reversed(steps) if backwards else steps:
        h_BD = torch.addcmul(b_BD, a_BD, h_BD, out=y_BD)
    return y_BTD


def _in_chunks(a_BTD: Tensor, b_BTD: Tensor, h_BD: Tensor) -> Tensor:
    time = a_BTD.shape[1]
    chunk = math.isqrt(time - 1) + 1
    a_CBND = in_chunks(a_BTD, chunk, 1.0).movedim(2, 0).clone(memory_format=torch.contiguous_format)
    y_CBND = in_chunks(b_BTD, chunk).movedim(2, 0).clone(memory_format=torch.contiguous_format)
    for c in range(1, chunk):
        y_CBND[c].addcmul_(a_CBND[c], y_CBND[c - 1])
        a_CBND[c].mul_(a_CBND[c - 1])
    begin_BND = torch.empty_like(a_CBND[0])
    for n in range(begin_BND.shape[1]):
        begin_BND[:, n] = h_BD
        h_BD = torch.addcmul(y_CBND[-1, :, n], a_CBND[-1, :, n], h_BD)
    y_CBND.addcmul_(a_CBND, begin_BND)
    return y_CBND.movedim(0, 2).flatten(1, 2)[:, :time]
