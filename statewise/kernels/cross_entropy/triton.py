"""The nats of a row of logits, and their gradient in the place of the logits: two readings and one writing.

C tokens of one chunk, V vocabulary, R room of a row: logits from V on only fill it up, and their gradient is 0.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from statewise.kernels.with_triton import FUSED

_BLOCK = 4096  # logits that one program reads at once


@triton.jit(do_not_specialize=["V", "smoothing"])
def _row(
    logits_ptr, target_ptr, share_ptr, nats_ptr, V, R, smoothing,
    SHARED: tl.constexpr, SMOOTHED: tl.constexpr, GRADIENT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    logits_ptr += row * R
    target = tl.load(target_ptr + row)
    share = 1.0
    if SHARED:
        share = tl.load(share_ptr + row).to(tl.float32)
    lane = tl.arange(0, BLOCK)
    highest = tl.full([BLOCK], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    plain = tl.zeros([BLOCK], tl.float32)
    for begin in range(0, V, BLOCK):
        at = begin + lane
        inside = at < V
        # Loaded by the room, which is a round number: so numbers are read eight at a time.
        z = tl.load(logits_ptr + at, mask=at < R, other=float("-inf")).to(tl.float32)
        z = tl.where(inside, z, float("-inf"))
        higher = tl.maximum(highest, z)
        held = higher > float("-inf")
        total = total * tl.where(held, tl.exp(highest - higher), 1.0) + tl.where(held, tl.exp(z - higher), 0.0)
        if SMOOTHED:
            plain += tl.where(inside, z, 0.0)
        highest = higher
    top = tl.max(highest, 0)
    norm = top + tl.log(tl.sum(tl.where(total != 0, total * tl.exp(highest - top), 0.0), 0))
    at_target = tl.load(logits_ptr + target).to(tl.float32)
    nats = norm - at_target
    if SMOOTHED:
        nats += smoothing * (at_target - tl.sum(plain, 0) / V)
    tl.store(nats_ptr + row, nats * share)
    if GRADIENT:
        tl.debug_barrier()  # the target's logit has been read by all before it is written over
        for begin in range(0, R, BLOCK):
            at = begin + lane
            z = tl.load(logits_ptr + at, mask=at < R, other=0.0).to(tl.float32)
            d = tl.exp(z - norm) - smoothing / V - tl.where(at == target, 1.0 - smoothing, 0.0)
            tl.store(logits_ptr + at, tl.where(at < V, d * share, 0.0), mask=at < R)


def nats_and_gradient(
    logits_CR: Tensor, target_C1: Tensor, share_C1: Tensor | None, smoothing: float, *, vocab: int, gradient: bool
) -> tuple[Tensor, Tensor]:
    """Each token's nats by its share; the gradient of their sum lies where the logits lay."""
    nats_C = torch.empty(len(logits_CR), dtype=torch.float32, device=logits_CR.device)
    _row[(len(logits_CR),)](
        logits_CR, target_C1, nats_C if share_C1 is None else share_C1, nats_C, vocab, logits_CR.shape[1], smoothing,
        SHARED=share_C1 is not None, SMOOTHED=smoothing != 0, GRADIENT=gradient,
        BLOCK=min(_BLOCK, triton.next_power_of_2(vocab)), num_warps=8, **FUSED,
    )  # fmt: skip
    return nats_C, logits_CR
