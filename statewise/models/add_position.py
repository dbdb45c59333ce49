"""Positions as vectors, added once below the first block. The state is how far each row has read.

B batch, T time, D width.
"""

from typing import Literal, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from statewise.core import Machine, is_known, is_symbolic, one_step, past_end
from statewise.encoders import TransformerEncoder
from statewise.layers import sinusoid
from statewise.specs import UserError


@final
class AddPosition(Machine[Tensor]):
    """`y_t = x_t + p[at_t]`, p learned (up to `context` positions) or sinusoidal (Vaswani et al. 2017).

    The state is the position each row has come to, so rows of a batch and cuts of a text may fall as they like.
    """

    def __init__(
        self,
        width: int,
        *,
        kind: Literal["learned", "sinusoidal"],
        context: int = 1024,
        scale: float = 1.0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.width = width
        self.context = context
        self.weight_PD: nn.Parameter | None = None
        if kind == "learned":
            self.weight_PD = nn.Parameter(torch.empty(context, width))
            nn.init.normal_(self.weight_PD, std=scale, generator=generator)

    def sample_input(self, batch: int, time: int, *, generator: torch.Generator) -> Tensor:
        return torch.randn(batch, time, self.width, dtype=torch.float64, generator=generator).to(self.like)

    def init_state(self, batch: int) -> Tensor:
        return torch.zeros(batch, dtype=torch.int64, device=self.like.device)

    def forward(
        self, x_BTD: Tensor, state: Tensor | None = None, lengths_B: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        at_B = self.init_state(x_BTD.shape[0]) if state is None else state
        self._check(at_B if state is not None else None, x_BTD.shape[1], lengths_B)
        at_BT = at_B[:, None] + torch.arange(x_BTD.shape[1], device=x_BTD.device)
        if lengths_B is None:
            return x_BTD + self._vectors(at_BT, x_BTD), at_B + x_BTD.shape[1]
        # Padding may reach past the last learned position; its output is not used.
        y_BTD = x_BTD + self._vectors(past_end(at_BT, lengths_B, 0), x_BTD)
        return past_end(y_BTD, lengths_B), at_B + lengths_B

    def step(self, x_BD: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        return one_step(self.forward, x_BD, state)

    def reserve(self, state: Tensor, tokens: int) -> tuple[Tensor, int]:
        """Learned positions are limited: checked once here, so that `step_` need not synchronise with a device."""
        if self.weight_PD is None:
            return state, tokens
        return state, max(0, min(tokens, self.context - int(state.max())))

    @torch.no_grad()
    def step_(self, x_BD: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        return x_BD + self._vectors(state, x_BD), state + 1

    def _check(self, at_B: Tensor | None, time: int, lengths_B: Tensor | None) -> None:
        """Refuse positions without a vector. On a GPU the lookup itself would abort the process."""
        if self.weight_PD is None or (at_B is None and not is_symbolic(time) and time <= self.context):
            return  # the usual case needs no check
        if not is_known(self.weight_PD):
            return
        read_B = torch.tensor([time]) if lengths_B is None else lengths_B
        ends_B = read_B if at_B is None else at_B + read_B.to(at_B.device)
        last = int(torch.where(read_B.to(ends_B.device) > 0, ends_B, 0).max()) - 1
        if last >= self.context:
            raise UserError(
                f"position {last} is past the {self.context} positions this model has vectors for",
                fix="read less, train with a larger model.context, or with position = 'rotary' or 'alibi'",
            )

    def _vectors(self, at: Tensor, like: Tensor) -> Tensor:
        if self.weight_PD is None:
            return sinusoid(at, self.width, like=like)
        return F.embedding(at, self.weight_PD)


def longest_context(model: nn.Module) -> int | None:
    """How many positions a model can read; None: any number."""
    parts = (part for part in model.modules() if isinstance(part, AddPosition | TransformerEncoder))
    return min((part.weight_PD.shape[0] for part in parts if part.weight_PD is not None), default=None)
