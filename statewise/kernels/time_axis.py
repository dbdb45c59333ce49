"""What kernels share along the time axis: row ends, chunks, the last inputs as a state, memory, a wide enough dtype.

Time is axis 1 of every input. B batch, T time, N chunks, C time steps in a chunk, S remembered time steps.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from statewise.core import past_end as past_end


def reverse_rows(x: Tensor, lengths_B: Tensor | None = None) -> Tensor:
    """Each row reversed within its own length; padding stays where it is. Its own inverse."""
    if lengths_B is None:
        return x.flip(1)
    at_1T = torch.arange(x.shape[1], device=x.device)[None]
    length_B1 = lengths_B[:, None].clamp(max=x.shape[1])
    from_BT = torch.where(at_1T < length_B1, length_B1 - 1 - at_1T, at_1T)
    return x.gather(1, from_BT.view(*from_BT.shape, *[1] * (x.dim() - 2)).expand_as(x))


def in_chunks(x: Tensor, chunk: int, value: float = 0.0) -> Tensor:
    """`[B, T, ...]` to `[B, N, C, ...]`, filled up at the end with `value`."""
    batch, time, *rest = x.shape
    # Not F.pad: torch.compile is mistaken in how the gradient of that lies in memory.
    filled = torch.cat([x, x.new_full((batch, -time % chunk, *rest), value)], dim=1)
    return torch.unflatten(filled, 1, (-1, chunk))


def wide(*tensors: Tensor) -> tuple[Tensor, ...]:
    """At least float32: sums over time lose more digits than half precision has."""
    return tuple(value.to(torch.promote_types(value.dtype, torch.float32)) for value in tensors)


def no_autocast(like: Tensor) -> AbstractContextManager[None]:
    """Off, because autocast would narrow again what `wide` widened."""
    return nullcontext() if like.is_meta else torch.autocast(like.device.type, enabled=False)


def is_autocast(like: Tensor) -> bool:
    """The meta device has no autocast."""
    return not like.is_meta and torch.is_autocast_enabled(like.device.type)


def extend(past_BS: Tensor, x_BT: Tensor, lengths_B: Tensor | None) -> tuple[Tensor, Tensor]:
    """Past and present in one row `[B, S + T, …]`, and the last S time steps before each row's end `[B, S, …]`."""
    all_BL = torch.cat([past_BS, x_BT.to(past_BS.dtype)], dim=1)
    size, time = past_BS.shape[1], x_BT.shape[1]
    if lengths_B is None:
        return all_BL, all_BL[:, time:]
    at_BS = lengths_B.clamp(min=0, max=time)[:, None] + torch.arange(size, device=x_BT.device)
    row_B1 = torch.arange(x_BT.shape[0], device=x_BT.device)[:, None]
    return all_BL, all_BL[row_B1, at_BS]


def beyond(lengths_B: Tensor, time: int) -> Tensor:
    """`[B, T]`: true where a row has ended."""
    return torch.arange(time, device=lengths_B.device) >= lengths_B[:, None]


def row_lengths(like_BT: Tensor, lengths_B: Tensor | None) -> Tensor:
    """As many time steps as each row has: all, unless it is told otherwise."""
    length_B = torch.full(like_BT.shape[:1], like_BT.shape[1], dtype=torch.int64, device=like_BT.device)
    return length_B if lengths_B is None else torch.minimum(lengths_B.to(length_B), length_B)


def unwritten(ragged: bool) -> Callable[..., Tensor]:
    """What makes a tensor for results: past a row's end nothing is written, so there it must be 0 beforehand."""
    return torch.zeros if ragged else torch.empty


def dense(*parts: Tensor) -> tuple[Tensor, ...]:
    """With the last axis side by side in memory; copied only where it is not."""
    return tuple(part if part.stride(-1) == 1 else part.contiguous() for part in parts)
