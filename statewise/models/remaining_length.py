"""The third way to end: the length is predicted first, and the steps to go are an input at every step.

B batch, T content time with the edge, E embedding width, D feature width, V content symbols, K parts of a mixture.
"""

from typing import NamedTuple, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from statewise.core import State, state_type
from statewise.kernels import no_autocast
from statewise.layers import make_linear
from statewise.models.termination import (
    Body,
    Terminating,
    first_state,
    make_head,
    surprise,
    targets_by_step,
    wide,
)


class WholeLogistic(NamedTuple):
    """A mixture of logistic distributions rounded to the whole numbers from 0 on."""

    log_weight_BK: Tensor
    location_BK: Tensor
    scale_BK: Tensor

    def cumulative(self, number_B: Tensor) -> Tensor:
        """P(n <= number)."""
        z_BK = (number_B[:, None].double() + 0.5 - self.location_BK) / self.scale_BK
        return (self.log_weight_BK.exp() * z_BK.sigmoid()).sum(-1)

    def log_probability(self, number_B: Tensor) -> Tensor:
        """`log(σ(b) - σ(a))` between the two borders of the number; all below 0 counts as 0."""
        number_B1 = number_B[:, None].double()
        upper_BK = (number_B1 + 0.5 - self.location_BK) / self.scale_BK
        lower_BK = (number_B1 - 0.5 - self.location_BK) / self.scale_BK
        # σ(b) - σ(a) = σ(b) σ(-a) (1 - e^(a - b)): no digits cancel however far out it is.
        inside_BK = F.logsigmoid(upper_BK) + F.logsigmoid(-lower_BK) + torch.log(-torch.expm1(lower_BK - upper_BK))
        part_BK = torch.where(number_B1 <= 0, F.logsigmoid(upper_BK), inside_BK)
        return torch.logsumexp(self.log_weight_BK + part_BK, dim=-1)

    def quantile(self, uniform_B: Tensor) -> Tensor:
        """The smallest n with P(n' <= n) > uniform, by bisection."""
        # An upper bound: 60 scales out, the remaining probability is below a double's precision.
        high_B = (self.location_BK + 60 * self.scale_BK).amax(-1).clamp(min=1.0).ceil()
        low_B = torch.full_like(high_B, -1.0)
        while bool((open_B := high_B - low_B > 1).any()):
            middle_B = ((low_B + high_B) / 2).floor()
            above_B = self.cumulative(middle_B) > uniform_B
            high_B = torch.where(open_B & above_B, middle_B, high_B)
            low_B = torch.where(open_B & ~above_B, middle_B, low_B)
        return high_B.long()


OVER, UNKNOWN = -1, -2  # where other numbers count the steps to go
_EXACT = 8  # up to so many steps to go, each number has an input of its own


@state_type
class RemainingState(NamedTuple):
    inner: State
    due_B: Tensor  # the steps to go that the next input will be told; OVER after it was told 0, UNKNOWN in a prompt


@final
class RemainingLength(Terminating[RemainingState]):
    """After the prompt the length is predicted; from then on the steps to go are an input at every step.

    The count is part of the state, so it is saved, forked and reordered with it. It is predicted once, from the
    prompt: later the input itself contains it. Its distribution is a mixture of logistic ones
    over the whole numbers, without a largest length.
    """

    def __init__(self, *, body: Body, parts: int = 4, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.body = body
        self.head = make_head(body, body.vocab, generator)
        self.length = make_linear(body.width, 3 * parts, generator=generator)
        self.enter = nn.Parameter(torch.empty(_EXACT + 4, body.embedding.weight.shape[1]))
        nn.init.normal_(self.enter, std=0.5, generator=generator)

    def init_state(self, batch: int) -> RemainingState:
        unknown_B = torch.full((batch,), UNKNOWN, dtype=torch.int64, device=self.like.device)
        return RemainingState(first_state(self.body, batch), unknown_B)

    def features(
        self, tokens_BT: Tensor, state: RemainingState | None, lengths_B: Tensor | None
    ) -> tuple[Tensor, RemainingState]:
        state = state or self.init_state(tokens_BT.shape[0])
        time = tokens_BT.shape[1]
        known_B = state.due_B >= OVER
        ahead_BT = state.due_B[:, None] - torch.arange(time, device=tokens_BT.device)
        remaining_BT = torch.where(known_B[:, None], ahead_BT.clamp(min=0), UNKNOWN)
        told_BTE = self._told(remaining_BT) @ self.enter
        y_BTD, inner = self.body.read(tokens_BT, state.inner, lengths_B, told_BTE=told_BTE)
        read_B = torch.full_like(state.due_B, time) if lengths_B is None else lengths_B.clamp(max=time)
        # Once over it stays so: reading past the end gets 0 steps to go.
        due_B = torch.where(known_B, (state.due_B - read_B).clamp(min=OVER), UNKNOWN)
        return y_BTD, RemainingState(inner, due_B)

    def _told(self, remaining_BT: Tensor) -> Tensor:
        """A number as inputs: itself, its logarithm, and a switch for each of the last few and for not knowing."""
        known_BT = remaining_BT >= 0
        many_BT = remaining_BT.clamp(min=0).to(self.enter.dtype)
        exact_BTK = F.one_hot(remaining_BT.clamp(min=0, max=_EXACT), _EXACT + 1).to(self.enter.dtype)
        told_BTF = torch.cat([many_BT[..., None] / 32, many_BT.log1p()[..., None], exact_BTK], dim=-1)
        told_BTF = told_BTF * known_BT[..., None]
        return torch.cat([told_BTF, (~known_BT)[..., None].to(told_BTF)], dim=-1)

    def outputs(self, y: Tensor, state: RemainingState) -> Tensor:
        logits = self.head(y)
        return torch.cat([logits, torch.zeros_like(logits[..., :1])], dim=-1)  # the end is in the state

    def begin(
        self,
        summary_BD: Tensor,
        state: RemainingState,
        *,
        length_B: Tensor | None = None,
        uniform_B: Tensor | None = None,
    ) -> RemainingState:
        if length_B is None:
            length_B = self.predicted_length(summary_BD, uniform_B)
        return state._replace(due_B=length_B.to(state.due_B))

    def nats(
        self, summary_BD: Tensor, outputs_BTV: Tensor, content_BT: Tensor, length_B: Tensor, *, smoothing: float = 0.0
    ) -> Tensor:
        next_BT, goes_on_BT, _ = targets_by_step(outputs_BTV, content_BT, length_B)
        nats_BT = surprise(outputs_BTV[:, :, :-1], next_BT, smoothing).masked_fill(~goes_on_BT, 0.0)
        of_length_B1 = -self._length(summary_BD).log_probability(length_B)[:, None]
        return torch.cat([nats_BT[:, :1] + of_length_B1, nats_BT[:, 1:]], dim=1)

    def told(self, prompt: int, length: int) -> Tensor | None:
        device = self.like.device
        unknown_P = torch.full((prompt,), UNKNOWN, dtype=torch.int64, device=device)
        to_go_N = torch.arange(length, -1, -1, device=device)
        return self._told(torch.cat([unknown_P, to_go_N])[None])[0] @ self.enter

    def log_chances(self, outputs: Tensor) -> Tensor:
        """Of symbols only: the end was decided before the first of them."""
        return F.pad(wide(outputs[..., :-1]).log_softmax(-1), (0, 1), value=-torch.inf)

    def over(self, state: RemainingState, time: int = 1) -> Tensor:
        to_go_BT = state.due_B[:, None] - torch.arange(1, time + 1, device=state.due_B.device)
        return (to_go_BT <= OVER) & (state.due_B >= OVER)[:, None]

    def predicted_length(self, summary_BD: Tensor, uniform_B: Tensor | None = None) -> Tensor:
        half_B = torch.full_like(summary_BD[:, 0], 0.5)
        return self._length(summary_BD).quantile(half_B if uniform_B is None else uniform_B)

    def decided(self, summary_BD: Tensor, state: RemainingState) -> Tensor:
        return self._length(summary_BD).log_probability(state.due_B)

    def stops(self, outputs_BV: Tensor, state: RemainingState, *, uniform_B: Tensor | None = None) -> Tensor:
        return state.due_B == OVER

    def _length(self, summary_BD: Tensor) -> WholeLogistic:
        with no_autocast(summary_BD):  # whole numbers want more digits than a half precision has
            parts_BK: Tensor = self.length(summary_BD.to(self.length.weight.dtype))
        weight_BK, location_BK, scale_BK = parts_BK.double().chunk(3, dim=-1)
        return WholeLogistic(weight_BK.log_softmax(-1), location_BK * 16, F.softplus(scale_BK) * 4 + 0.05)
