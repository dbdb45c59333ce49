"""What kernels that read several inputs along time share: the plain loop, row ends, chunks, a wide enough dtype.

Time is axis 1 of every input. B batch, T time, N chunks, C moments in a chunk.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F

from statewise.core import State, within_rows
from statewise.core.state import past_end as past_end

S = TypeVar("S", bound=State)


def unroll_many(
    step: Callable[..., tuple[Tensor, S]], inputs: Sequence[Tensor], state: S, lengths_B: Tensor | None
) -> tuple[Tensor, S]:
    """`core.unroll` for a step that takes several inputs: `step(*inputs_at_t, state)`."""
    outputs = []
    for t, moment in enumerate(zip(*(value.unbind(1) for value in inputs), strict=True)):
        y, state = within_rows(t, lengths_B, step(*moment, state), before=state)
        outputs.append(y)
    return torch.stack(outputs, dim=1), state


def reverse_rows(x: Tensor, lengths_B: Tensor | None = None) -> Tensor:
    """Each row backwards within its own length; what lies past it stays where it is. Its own inverse."""
    if lengths_B is None:
        return x.flip(1)
    at_1T = torch.arange(x.shape[1], device=x.device)[None]
    length_B1 = lengths_B[:, None].clamp(max=x.shape[1])
    from_BT = torch.where(at_1T < length_B1, length_B1 - 1 - at_1T, at_1T)
    return x.gather(1, from_BT.view(*from_BT.shape, *[1] * (x.dim() - 2)).expand_as(x))


def in_chunks(x: Tensor, chunk: int, value: float = 0.0) -> Tensor:
    """`[B, T, ...]` to `[B, N, C, ...]`, filled up at the end with `value`."""
    missing = -x.shape[1] % chunk
    padded = F.pad(x, [0, 0] * (x.dim() - 2) + [0, missing], value=value)
    return torch.unflatten(padded, 1, (-1, chunk))


def wide(*tensors: Tensor) -> tuple[Tensor, ...]:
    """At least float32: sums over time lose more digits than half precision has."""
    return tuple(value.to(torch.promote_types(value.dtype, torch.float32)) for value in tensors)


def no_autocast(like: Tensor) -> AbstractContextManager[None]:
    """Autocast would narrow again what `wide` widened."""
    return torch.autocast(like.device.type, enabled=False)
