"""A step of all rows as one CUDA graph: launched from Python, the ops of a small model cost far more than they compute.

A graph is for a fixed number of rows, so the rows in use are padded to a power of two; what the rest computes is thrown
away. Random numbers and the settings of each row are inputs, so a graph serves any texts that use the same filters.

B rows, V vocabulary.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from statewise.core import Replay, State, leaves, onto, rows
from statewise.decoding import RowSampling, draw, overwrite
from statewise.kernels.few_rows import packed_products, prepare_gpu
from statewise.models import TokenMachine


def padded(count: int) -> int:
    """The number of rows that so many are computed as."""
    return 1 << (count - 1).bit_length()


class CapturedStep:
    """One step of the first `count` rows of some memory, in place."""

    def __init__(
        self,
        model: TokenMachine[Any],
        count: int,
        *,
        memory: State,
        token_C: Tensor,
        ways: RowSampling,
        seen_CV: Tensor | None,
        count_CV: Tensor | None,
        never_N: Tensor,
        lists: Sequence[int | None],
    ) -> None:
        device = token_C.device
        self._state = rows(memory, slice(0, count))
        self._token_B, self._ways, self._never_N = token_C[:count], ways, never_N
        self._seen_BV = token_C if seen_CV is None else seen_CV[:count]
        self._count_BV = None if count_CV is None else count_CV[:count]
        self._uses_seen = seen_CV is not None and ways.repetition_B1 is not None
        self._alive_B = torch.ones(count, dtype=torch.int64, device=device)
        self._below_B1 = torch.zeros(count, 1, dtype=torch.float64, device=device)
        self.logits_BV = torch.zeros(0, device=device)  # what the step computed, before any filter
        self.finite_B = torch.ones(count, dtype=torch.bool, device=device)
        fixed = [leaf for (_, leaf), axis in zip(leaves(self._state), lists, strict=True) if axis is None]
        kept = [*fixed, self._token_B, *(table for table in (seen_CV, count_CV) if table is not None)]
        saved = [leaf.clone() for leaf in kept]

        def restore() -> None:
            """A warm-up must leave no trace; what it wrote into a list is overwritten by the real step."""
            for leaf, value in zip(kept, saved, strict=True):
                leaf.copy_(value)

        try:
            self._run = Replay(lambda: self._step(model), device, reset=restore)
        finally:
            restore()

    @torch.no_grad()
    def _step(self, model: TokenMachine[Any]) -> None:
        for _, leaf in leaves(self._state):
            if leaf.dim() == 1 and not leaf.is_floating_point():
                leaf.mul_(self._alive_B)  # a row nobody uses must not count on, beyond the end of its list
        with packed_products(len(self._token_B), {}, prepare_gpu):
            self.logits_BV, after = model.step_(self._token_B, self._state)
        overwrite(self._state, after)
        logits_BV = self.logits_BV
        if len(self._never_N):
            logits_BV = logits_BV.index_fill(1, self._never_N, -torch.inf)
        self.finite_B.copy_(logits_BV.amax(-1).isfinite())
        below_B1 = None if self._ways.temperature_B1 is None else self._below_B1
        token_B = draw(logits_BV, self._ways, below_B1=below_B1, seen_BV=self._seen_BV, count_BV=self._count_BV)
        self._token_B.copy_(token_B)
        if self._uses_seen:
            self._seen_BV.scatter_(1, token_B[:, None], True)
        if self._count_BV is not None:
            self._count_BV.scatter_add_(1, token_B[:, None], torch.ones_like(self._count_BV[:, :1]))

    def __call__(self, below: NDArray[np.float64] | None, used: int) -> None:
        """One step of the first `used` rows, with a random number for each."""
        if below is not None:
            self._below_B1[: len(below)] = onto(self._below_B1.device, torch.from_numpy(below)[:, None])
        self._alive_B[:used] = 1
        self._alive_B[used:] = 0
        self._run()
