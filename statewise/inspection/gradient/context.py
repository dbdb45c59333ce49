"""What context is worth: the loss at the same tokens, told only the last so many before them.

B windows, C context, T time.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from statewise.core import Machine
from statewise.inspection.progress import Progress

_TOKENS = 1 << 14  # read at a time


class Gain(NamedTuple):
    contexts: tuple[int, ...]
    nats: tuple[float, ...]  # mean loss with each context
    half: tuple[float, ...]  # of the 95 % interval of the loss *above that of the longest*, target by target
    targets: int

    def length(self, threshold: float) -> int | None:
        """The context from which on less than a share of the whole gain is still to be had; None: only the longest."""
        return self._length(threshold, [nats - self.nats[-1] for nats in self.nats])

    def lengths(self, threshold: float) -> tuple[int | None, int | None]:
        """The least and the most that it may be: were every loss at the low, or at the high end of its interval."""
        low, high = (
            [nats - self.nats[-1] + sign * half for nats, half in zip(self.nats, self.half)] for sign in (-1, 1)
        )
        return self._length(threshold, low), self._length(threshold, high)

    def _length(self, threshold: float, dearer: Sequence[float]) -> int | None:
        whole = self.nats[0] - self.nats[-1]
        if whole <= 0:
            return self.contexts[0]
        short = [at for at, nats in enumerate(dearer[:-1]) if nats >= threshold * whole]
        first = short[-1] + 1 if short else 0
        return self.contexts[first] if first < len(self.contexts) - 1 else None


def longest_context(tokens: int, *, wanted: int, targets: int) -> int:
    """What of a text is context: all that is wanted, but so much is left that it is tried on many tokens."""
    return min(wanted, max((tokens - 1) // 2, tokens - 1 - targets, 2), tokens - 1)


@torch.no_grad()
def gain(machine: Machine[Any], window_BT: Tensor, progress: Progress) -> Gain:
    """The last token of each window is predicted from 1, 2, 4, … tokens before it, the memory fresh each time."""
    longest = window_BT.shape[1] - 1
    contexts = sorted({2**power for power in range(int(math.log2(longest)) + 1)} | {longest})
    found = []
    for context in progress.over(contexts, "reading with less context"):
        batch = max(1, _TOKENS // context)
        costs = []
        for some_BT in torch.split(window_BT, batch):
            y_BTV, _ = machine(some_BT[:, -1 - context : -1], None)
            costs.append(F.cross_entropy(y_BTV[:, -1].float(), some_BT[:, -1], reduction="none").double())
        found.append(torch.cat(costs))
    last_B = found[-1]
    root = math.sqrt(len(last_B))
    half = tuple(1.96 * float((one_B - last_B).std()) / root if root > 1 else 0.0 for one_B in found)
    return Gain(tuple(contexts), tuple(float(one_B.mean()) for one_B in found), half, len(last_B))
