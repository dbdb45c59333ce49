"""What Triton's kernels share that walk a row and head through time: where its numbers are, how it decays.

Inputs are read where they are, in whatever precision, and widened in registers: slices of one projection and heads that
share their keys need no copy. Only imported by kernels, since it imports Triton.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from statewise.kernels.gradients import is_wanted


@triton.jit
def own_state(z, H, K: tl.constexpr, V: tl.constexpr, KP: tl.constexpr):
    """Which program this is, its row and head, its keys' numbers, where those of a state with columns z are, and if."""
    program = tl.program_id(0).to(tl.int64)
    x = tl.arange(0, KP)
    return program, program // H, program % H, x, x[:, None] * V + z[None, :], (x < K)[:, None] & (z < V)[None, :]


@triton.jit
def own_steps(t, x, z, b, h, length, T, H, K: tl.constexpr, V: tl.constexpr):
    """Time steps t of row b and head h: their indices among all B T H, and masks for them, their keys x, values z."""
    held = t < length
    return (b * T + t) * H + h, held, held[:, None] & (x < K)[None, :], held[:, None] & (z < V)[None, :]


@triton.jit
def tile(ptr, time_stride, c, x, here):
    """Time steps c from `ptr` on, numbers x of each."""
    return tl.load(ptr + c[:, None] * time_stride + x[None, :], mask=here, other=0.0).to(tl.float32)


@triton.jit
def decays(g, c):
    """G, and e^{G_t - G_s} for s ≤ t."""
    total = tl.cumsum(g, 0)
    earlier = c[:, None] >= c[None, :]
    between = tl.exp(tl.where(earlier, total[:, None] - total[None, :], 0.0))
    return total, tl.where(earlier, between, 0.0)


def dense(*parts: Tensor) -> tuple[Tensor, ...]:
    """With the numbers of a head side by side; copied only where they are not."""
    return tuple(part if part.stride(-1) == 1 else part.contiguous() for part in parts)


def strides(*parts: Tensor) -> list[int]:
    """Of row, time and head, part by part."""
    return [stride for part in parts for stride in part.stride()[:3]]


def row_lengths(like_BT: Tensor, lengths_B: Tensor | None) -> Tensor:
    """As many time steps as each row has: all, unless it is told otherwise."""
    length_B = torch.full(like_BT.shape[:1], like_BT.shape[1], dtype=torch.int64, device=like_BT.device)
    return length_B if lengths_B is None else torch.minimum(lengths_B.to(length_B), length_B)


class Manner(NamedTuple):
    """In which a walk is made, apart from its numbers."""

    ragged: bool  # some rows may end before others
    exact: bool  # products of float32 are wanted as such
    save: bool  # for a backward

    @classmethod
    def of(cls, given: Sequence[Tensor], lengths_B: Tensor | None, *, exact: bool) -> "Manner":
        return cls(lengths_B is not None, exact, is_wanted(given))


def unwritten(ragged: bool) -> Callable[..., Tensor]:
    """What makes a tensor for results: past a row's end nothing is written, so there it must be 0 beforehand."""
    return torch.zeros if ragged else torch.empty


def walk_sizes(q: Tensor, v: Tensor, *, chunk: int, exact: bool, tile: int | None = None) -> dict[str, Any]:
    """What a walk is compiled for. `tile`: the most numbers of a state in one program, where columns are shared out.

    `exact`: products of float32 are wanted as such. Inside autocast they are not: it would have narrowed them further.
    """
    exact = exact and q.dtype == torch.float32 and not torch.backends.cuda.matmul.allow_tf32
    key, value = (max(16, triton.next_power_of_2(part.shape[-1])) for part in (q, v))
    if tile is not None:
        value = min(value, max(16, tile // key))
    return {
        "C": chunk,
        "K": q.shape[-1],
        "V": v.shape[-1],
        "KP": key,
        "VP": value,
        "PRECISION": "tf32x3" if exact else "tf32",
        "num_warps": 8 if key * value > 2048 else 4,  # each keeps its share of the state in registers
        "num_stages": 1,
    }
