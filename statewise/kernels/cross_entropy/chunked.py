"""The cross-entropy of many tokens over a large vocabulary, of which only some rows of logits exist at any time.

The gradient by the logits of a token is `share · (softmax - q)`: all that it needs stands in that token's own row.
So one chunk of tokens after the other is given its logits, its nats, and the products of its gradient with W and y,
which are all that is kept: the same three products as written out, and memory for one chunk of logits.

N tokens, C tokens of one chunk, D features, V vocabulary, R rows of the matrix: V, on a GPU rounded up.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from statewise.kernels.cross_entropy import naive
from statewise.kernels.cross_entropy.naive import chunk_tokens
from statewise.kernels.gradients import is_wanted, through
from statewise.kernels.time_axis import no_autocast, wide
from statewise.kernels.with_triton import load, obstacle

_ROUND = 64  # rows of logits that begin anywhere cost a GPU its fast products, and loads of many numbers at once


def _nats(logits_CV: Tensor, target_C1: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """Of each token, and the logarithm of the sum that its softmax divides by."""
    norm_C1 = logits_CV.logsumexp(-1, keepdim=True)
    nats_C = (norm_C1 - logits_CV.gather(1, target_C1))[:, 0]
    if smoothing:
        nats_C = torch.lerp(nats_C, norm_C1[:, 0] - logits_CV.mean(-1), smoothing)
    return nats_C, norm_C1


@torch.no_grad()
def token_nats(
    y_ND: Tensor, weight_VD: Tensor, bias_V: Tensor | None, target_N: Tensor, smoothing: float = 0.0
) -> Tensor:
    """`naive.token_nats` without gradients."""
    found, size = [], chunk_tokens(len(weight_VD), y_ND.device)
    for begin in range(0, len(y_ND), size):
        some = slice(begin, begin + size)
        (logits_CV,) = wide(F.linear(y_ND[some], weight_VD, bias_V))
        found.append(_nats(logits_CV, target_N[some, None], smoothing)[0])
    return torch.cat(found)


def total_nats(
    y_ND: Tensor, weight_VD: Tensor, bias_V: Tensor | None, target_N: Tensor, share_N: Tensor | None, smoothing: float
) -> Tensor:
    narrow = y_ND.dtype
    if torch.is_autocast_enabled(y_ND.device.type):
        narrow = torch.get_autocast_dtype(y_ND.device.type)
    # A Function is not told whether anybody will ask for gradients, and here they are most of the work.
    wanted = tuple(is_wanted([part]) for part in (y_ND, weight_VD, bias_V))
    inputs = (y_ND, weight_VD, bias_V, target_N, share_N)
    total: Tensor = _TotalNats.apply(*inputs, smoothing, narrow, wanted)  # type: ignore[no-untyped-call]  # torch leaves it untyped
    return total


class _TotalNats(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        y_ND: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor | None,
        target_N: Tensor,
        share_N: Tensor | None,
        smoothing: float,
        narrow: torch.dtype,
        wanted: tuple[bool, ...],
    ) -> Tensor:
        ctx.save_for_backward(y_ND, weight_VD, bias_V, target_N, share_N)
        ctx.smoothing, ctx.narrow, ctx.wanted = smoothing, narrow, wanted
        with no_autocast(y_ND):
            total, ctx.gradients = _walk(y_ND, weight_VD, bias_V, target_N, share_N, smoothing, narrow, wanted=wanted)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (scale,) = gradients
        y_ND, weight_VD, bias_V, target_N, share_N = ctx.saved_tensors
        if torch.is_grad_enabled():  # somebody will differentiate this again
            with torch.autocast(y_ND.device.type, ctx.narrow, enabled=ctx.narrow != y_ND.dtype):
                total = naive.total_nats(y_ND, weight_VD, bias_V, target_N, share_N, ctx.smoothing)
            return *through((total,), (y_ND, weight_VD, bias_V), (scale,)), None, None, None, None, None
        kept, ctx.gradients = ctx.gradients, None  # handed out, not copied; who comes a second time walks again
        if kept is None:
            with no_autocast(y_ND):
                _, kept = _walk(
                    y_ND, weight_VD, bias_V, target_N, share_N, ctx.smoothing, ctx.narrow, wanted=ctx.wanted
                )
        like = (y_ND, weight_VD, bias_V)
        scaled = [
            None if part is None or to is None else part.mul_(scale).to(to.dtype)
            for part, to in zip(kept, like, strict=True)
        ]
        return (*scaled, None, None, None, None, None)


def _walk(
    y_ND: Tensor,
    weight_VD: Tensor,
    bias_V: Tensor | None,
    target_N: Tensor,
    share_N: Tensor | None,
    smoothing: float,
    narrow: torch.dtype,
    *,
    wanted: tuple[bool, ...],
) -> tuple[Tensor, tuple[Tensor | None, Tensor | None, Tensor | None]]:
    """The sum, and its gradients by features, weight and bias, those that are wanted."""
    vocab, size = len(weight_VD), chunk_tokens(len(weight_VD), y_ND.device)
    # A sum over a chunk can leave the range of float16; bfloat16 has that of float32.
    in_place = narrow != torch.float16 and obstacle(y_ND) is None
    nats_and_gradient = load("cross_entropy").nats_and_gradient if in_place else _nats_and_gradient
    room = -(-vocab // _ROUND) * _ROUND if in_place else vocab
    y_ND, w_RD = y_ND.to(narrow), _with_room(weight_VD, room, narrow)
    c_R = None if bias_V is None else _with_room(bias_V, room, narrow)
    broad = torch.promote_types(narrow, torch.float32)
    total = torch.zeros((), dtype=broad, device=y_ND.device)
    dy_ND = torch.empty_like(y_ND) if wanted[0] else None
    dw_RD = torch.zeros_like(w_RD, dtype=broad) if wanted[1] else None
    dc_R = total.new_zeros(room) if wanted[2] else None
    for begin in range(0, len(y_ND), size):
        some = slice(begin, begin + size)
        y_CD = y_ND[some]
        share_C1 = None if share_N is None else share_N[some, None].to(broad)
        logits_CR = F.linear(y_CD, w_RD, c_R)
        nats_C, d_CR = nats_and_gradient(
            logits_CR, target_N[some, None], share_C1, smoothing, vocab=vocab, gradient=any(wanted)
        )
        total += nats_C.sum()
        if not any(wanted):
            continue
        if dc_R is not None:
            dc_R += d_CR.sum(0, dtype=broad)
        steep_CR = d_CR if narrow == torch.float16 else d_CR.to(narrow)
        if dw_RD is not None and steep_CR.dtype == broad:
            dw_RD.addmm_(steep_CR.mT, y_CD.to(broad))
        elif dw_RD is not None and dw_RD.is_cuda:
            torch.addmm(dw_RD, steep_CR.mT, y_CD, out_dtype=broad, out=dw_RD)  # sums stay in float32
        elif dw_RD is not None:
            dw_RD += steep_CR.mT @ y_CD
        if dy_ND is not None:
            torch.mm(d_CR.to(narrow), w_RD, out=dy_ND[some])
    return total, (dy_ND, None if dw_RD is None else dw_RD[:vocab], None if dc_R is None else dc_R[:vocab])


def _with_room(part: Tensor, rows: int, dtype: torch.dtype) -> Tensor:
    """With rows of zeros at the end: their logits are 0, and so is what they add to a gradient."""
    if len(part) == rows:
        return part.to(dtype)
    padded = part.new_zeros(rows, *part.shape[1:], dtype=dtype)
    padded[: len(part)] = part
    return padded


def _nats_and_gradient(
    logits_CV: Tensor, target_C1: Tensor, share_C1: Tensor | None, smoothing: float, *, vocab: int, gradient: bool
) -> tuple[Tensor, Tensor]:
    """Each token's nats by its share, and the gradient of their sum by the logits."""
    (logits_CV,) = wide(logits_CV)
    nats_C, norm_C1 = _nats(logits_CV, target_C1, smoothing)
    if share_C1 is not None:
        nats_C = nats_C * share_C1[:, 0]
    if not gradient:
        return nats_C, logits_CV
    d_CV = logits_CV.sub_(norm_C1).exp_()
    if smoothing:
        d_CV.sub_(smoothing / vocab)
    d_CV.scatter_(1, target_C1, d_CV.gather(1, target_C1) + (smoothing - 1))
    return nats_C, d_CV if share_C1 is None else d_CV.mul_(share_C1)
