"""One layer: a mixer and perhaps an MLP, each with norm, dropout, and perhaps the way around them."""

from collections.abc import Callable
from typing import Literal, TypeVar, final

import torch
from torch import Tensor

from statewise.core import Machine, Mixer, State, is_observed, observe
from statewise.layers import MLP, Dropout, Norm

S = TypeVar("S", bound=State)


@final
class Block(Machine[S]):
    """Each sublayer f is `x + dropout(f(norm(x)))` (pre) or `norm(x + dropout(f(x)))` (post).

    Without `residual` the sum is left out. The block's state is the mixer's: an MLP has no time.
    """

    def __init__(
        self,
        mixer: Mixer[S],
        *,
        norm: Norm,
        dropout: Dropout,
        residual: bool,
        norm_place: Literal["pre", "post"] = "pre",
        mlp: MLP | None = None,
        mlp_norm: Norm | None = None,
    ) -> None:
        super().__init__()
        self.norm = norm
        self.mixer = mixer
        self.dropout = dropout
        self.residual = residual
        self.norm_place: Literal["pre", "post"] = norm_place
        self.mlp = mlp
        self.mlp_norm = mlp_norm

    def sample_input(self, batch: int, time: int, *, generator: torch.Generator) -> Tensor:
        return self.mixer.sample_input(batch, time, generator=generator)

    def init_state(self, batch: int) -> S:
        return self.mixer.init_state(batch)

    def forward(self, x_BTD: Tensor, state: S | None = None, lengths_B: Tensor | None = None) -> tuple[Tensor, S]:
        return self._around(lambda x: self.mixer(x, state, lengths_B), x_BTD, self.dropout)

    def absorb(self, x_BTD: Tensor, state: S | None = None, lengths_B: Tensor | None = None) -> S:
        x_BTD = self.norm(x_BTD, for_products=True) if self.norm_place == "pre" else x_BTD
        return self.mixer.absorb(x_BTD, state, lengths_B)

    def step(self, x_BD: Tensor, state: S) -> tuple[Tensor, S]:
        return self._around(lambda x: self.mixer.step(x, state), x_BD, self._one_dropout)

    def reserve(self, state: S, tokens: int) -> tuple[S, int]:
        return self.mixer.reserve(state, tokens)

    def step_(self, x_BD: Tensor, state: S) -> tuple[Tensor, S]:
        return self._around(lambda x: self.mixer.step_(x, state), x_BD, self._one_dropout)

    def _one_dropout(self, y_BD: Tensor) -> Tensor:
        return self.dropout(y_BD[:, None])[:, 0] if self.training else y_BD

    def _around(
        self, mix: Callable[[Tensor], tuple[Tensor, S]], x: Tensor, dropout: Callable[[Tensor], Tensor]
    ) -> tuple[Tensor, S]:
        """One definition for a sequence and for a moment."""
        pre = self.norm_place == "pre"
        y, after = mix(self.norm(x, for_products=True) if pre else x)
        y = dropout(y)
        if self.mlp is None or self.mlp_norm is None:
            y = x + y if self.residual else y
            return shown(y if pre else self.norm(y)), after
        if pre and self.residual:
            y, read = self.mlp_norm.of_sum(x, y)
        else:
            y = x + y if self.residual else y
            y = y if pre else self.norm(y)
            read = self.mlp_norm(y, for_products=True) if pre else y
        if self.residual and not self.training:  # nothing is dropped in between
            z = self.mlp(read, onto=y)
        else:
            z = dropout(self.mlp(read))
            z = y + z if self.residual else z
        return shown(z if pre else self.mlp_norm(z)), after


def shown(y: Tensor) -> Tensor:
    """What a layer hands on, to a lens moment by moment: units that every architecture has."""
    if not is_observed():
        return y
    if y.dim() == 2:
        return observe("block.output", y)
    return torch.stack([observe("block.output", y_BD) for y_BD in y.unbind(1)], dim=1)
