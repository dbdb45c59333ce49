"""Whether an update may be made, decided where the numbers are: nobody has to wait until the host has looked.

P trained parameters.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class Report:
    """What a step leaves to be read: its summed loss, the norm of its gradient, and that of each parameter's part."""

    def __init__(self, numbers: Sequence[float], names: Sequence[str]) -> None:
        self.total, self.norm, *self.norms = numbers
        self.names = names

    @property
    def is_finite(self) -> bool:
        return math.isfinite(self.total) and math.isfinite(self.norm)

    def culprit(self) -> str | None:
        """What was not finite: the loss before the gradients that follow from it."""
        if not math.isfinite(self.total):
            return "the loss"
        found = [name for name, norm in zip(self.names, self.norms) if not math.isfinite(norm)]
        return f"the gradient of {found[0]}" if found else None


class Guard:
    """Once a loss or a gradient was not finite, it holds back that update and all that follow.

    `stopped` is 0 or 1. Fused optimisers call it `found_inf`: at 1 they leave weights and memory as they are. `report`
    is rewritten by every step; whoever wants it later copies it in time.
    """

    def __init__(self, model: nn.Module) -> None:
        trained = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        self.names = [name for name, _ in trained]
        self.parameters = [p for _, p in trained]
        self._none = self.parameters[0].detach().new_zeros(())  # the norm of a gradient that nothing reached
        self.stopped = torch.zeros((), device=self._none.device)
        self.report = self._none.new_zeros(2 + len(trained))

    @torch.no_grad()
    def watch(self, total: Tensor) -> Tensor:
        """Look at a summed loss and at all gradients. Returns the norm of these, before clipping."""
        reached = {p: p.grad for p in self.parameters if p.grad is not None}
        found = dict(zip(reached, torch._foreach_norm(list(reached.values()))))
        norms_P = torch.stack([found.get(p, self._none) for p in self.parameters])
        norm: Tensor = torch.linalg.vector_norm(norms_P)
        self.report.copy_(torch.cat([torch.stack([total.to(norm), norm]), norms_P]))
        self.stopped.logical_or_((self.report[:2] * 0 != 0).any())  # 0 times what is not finite is not a number
        return norm

    @contextmanager
    def closed(self) -> Iterator[None]:
        """Inside, steps change nothing."""
        before = self.stopped.clone()
        self.stopped.fill_(1)
        try:
            yield
        finally:
            self.stopped.copy_(before)
