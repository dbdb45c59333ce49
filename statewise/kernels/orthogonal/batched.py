"""All matrices of one shape at once, whichever way they lie: three products a step, not three for each.

N matrices, S their shorter side, L their longer.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from statewise.kernels.orthogonal.naive import COEFFICIENTS, SMALLEST, STEPS


def orthogonal(
    matrices: Sequence[Tensor], *, dtype: torch.dtype | None = None, void: Tensor | None = None
) -> list[Tensor]:
    """Of each, in their order, iterated in `dtype`; zeros where `void` is true. Nothing here waits for the device."""
    results: dict[int, Tensor] = {}
    for wide, tall in _by_shape(matrices).values():
        stacks = [torch.stack([matrices[place] for place in places]) for places in (wide, tall) if places]
        if tall:
            stacks[-1] = stacks[-1].mT
        x_NSL = _iterated(torch.cat(stacks).to(dtype or stacks[0].dtype)).to(stacks[0].dtype)
        if void is not None:
            x_NSL = x_NSL.masked_fill(void, 0.0)
        results |= zip(wide, x_NSL[: len(wide)])
        # In rows again: they are added to many weights at once.
        results |= zip(tall, x_NSL[len(wide) :].mT.contiguous())
    return [results[place] for place in range(len(matrices))]


def _by_shape(matrices: Sequence[Tensor]) -> dict[torch.Size, tuple[list[int], list[int]]]:
    """The places of those that are alike up to a turn: first the wide ones, then the tall."""
    alike: dict[torch.Size, tuple[list[int], list[int]]] = {}
    for place, matrix in enumerate(matrices):
        is_tall = matrix.shape[0] > matrix.shape[1]
        wide, tall = alike.setdefault(matrix.mT.shape if is_tall else matrix.shape, ([], []))
        (tall if is_tall else wide).append(place)
    return alike


def _iterated(x_NSL: Tensor) -> Tensor:
    a, b, c = COEFFICIENTS
    x_NSL = x_NSL / torch.linalg.vector_norm(x_NSL, dim=(1, 2), keepdim=True).clamp(min=SMALLEST)
    for _ in range(STEPS):
        gram_NSS = torch.bmm(x_NSL, x_NSL.mT)
        gram_NSS = torch.baddbmm(gram_NSS, gram_NSS, gram_NSS, beta=b, alpha=c)
        x_NSL = torch.baddbmm(x_NSL, gram_NSS, x_NSL, beta=a)
    return x_NSL
