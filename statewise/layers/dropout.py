"""Dropout that knows about time: fresh at every step, or one mask for the whole sequence."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from statewise.core import Described, Switch

_held: Switch[dict[int, Tensor] | None] = Switch("held_masks", None)


@contextmanager
def one_sequence() -> Iterator[None]:
    """Steps taken in here belong to one sequence: what is dropped for all of it is drawn once.

    Inside are masks of variational dropout and of dropped weights. A machine that has to unroll itself to train
    needs this; one that reads a sequence in one call does not.
    """
    with _held.set({}):
        yield


def _once(owner: object, draw_like: Tensor, rate: float) -> Tensor:
    """A mask of `owner`'s own: the same one until the sequence ends."""
    held, keep = _held.get(), 1 - rate
    if held is None:
        return torch.empty_like(draw_like).bernoulli_(keep).div_(keep)
    if id(owner) not in held:
        held[id(owner)] = torch.empty_like(draw_like).bernoulli_(keep).div_(keep)
    return held[id(owner)]


def drop(x: Tensor, rate: float, *, training: bool) -> Tensor:
    """F.dropout, which draws and multiplies by a mask of ones even where there is nothing to drop."""
    if not training or rate == 0:
        return x
    if isinstance(x, nn.Parameter) and _held.get() is not None:
        return x * _once(x, x.detach(), rate)
    return F.dropout(x, rate)


class Dropout(Described):
    """`variational=True` draws one mask a row and keeps it over time (Gal and Ghahramani 2016)."""

    def __init__(self, rate: float, *, variational: bool = False) -> None:
        super().__init__()
        self.rate = rate
        self.variational = variational

    def forward(self, x_BTD: Tensor) -> Tensor:
        if not self.variational or not self.training:
            return drop(x_BTD, self.rate, training=self.training)
        if self.rate == 0.0:
            return x_BTD
        return x_BTD * _once(self, x_BTD[:, :1].detach(), self.rate)
