"""How well a key answers a query: the scores of the attention family, each by its formula.

B batch, T queries, S source positions, Q query width, K key width, A hidden width of the score.
"""

import math
from abc import ABC, abstractmethod
from typing import assert_never, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from statewise.specs import ScoreKind, UserError


class Score(nn.Module, ABC):
    """`prepare` does once per source what does not depend on the query; the call does the rest."""

    def prepare(self, keys_BSK: Tensor) -> Tensor:
        return keys_BSK

    @abstractmethod
    def forward(self, query_BTQ: Tensor, prepared_BSA: Tensor) -> Tensor:
        """Scores `[B, T, S]`."""

    def __call__(self, query_BTQ: Tensor, prepared_BSA: Tensor) -> Tensor:
        scores_BTS: Tensor = super().__call__(query_BTQ, prepared_BSA)
        return scores_BTS


@final
class Dot(Score):
    """`q · k` (Luong et al. 2015), or divided by √K (Vaswani et al. 2017) so that its spread stays 1."""

    def __init__(self, width: int, *, scaled: bool) -> None:
        super().__init__()
        self.scale = 1 / math.sqrt(width) if scaled else 1.0

    def forward(self, query_BTQ: Tensor, prepared_BSA: Tensor) -> Tensor:
        return self.scale * query_BTQ @ prepared_BSA.mT


@final
class Cosine(Score):
    """`s · (q · k) / (|q| |k|)` with a learned sharpness s (Graves et al. 2014)."""

    def __init__(self, *, sharpness: float = 1.0) -> None:
        super().__init__()
        self.sharpness = nn.Parameter(torch.tensor(float(sharpness)))

    def prepare(self, keys_BSK: Tensor) -> Tensor:
        return _unit(keys_BSK)

    def forward(self, query_BTQ: Tensor, prepared_BSA: Tensor) -> Tensor:
        return self.sharpness * _unit(query_BTQ) @ prepared_BSA.mT


def _unit(x: Tensor) -> Tensor:
    """Vectors of length 1; 0 stays 0, in half precision too, where the usual guard against dividing by it is 0."""
    return F.normalize(x, dim=-1, eps=max(1e-12, torch.finfo(x.dtype).tiny))


@final
class General(Score):
    """`qᵀ W k` (Luong et al. 2015): query and key may have different widths."""

    def __init__(self, query_width: int, key_width: int, *, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.w_QK = nn.Parameter(torch.empty(query_width, key_width))
        nn.init.xavier_uniform_(self.w_QK, generator=generator)

    def prepare(self, keys_BSK: Tensor) -> Tensor:
        return keys_BSK @ self.w_QK.mT

    def forward(self, query_BTQ: Tensor, prepared_BSA: Tensor) -> Tensor:
        return query_BTQ @ prepared_BSA.mT


@final
class Additive(Score):
    """`vᵀ tanh(W q + U k + b)` (Bahdanau et al. 2015).

    Luong's `concat`, `vᵀ tanh(W [q; k])`, is the same function with W and U as one matrix and no bias.
    """

    def __init__(
        self,
        query_width: int,
        key_width: int,
        *,
        hidden: int,
        bias: bool = True,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.w_AQ = nn.Parameter(torch.empty(hidden, query_width))
        self.u_AK = nn.Parameter(torch.empty(hidden, key_width))
        self.b_A = nn.Parameter(torch.zeros(hidden)) if bias else None
        self.v_A = nn.Parameter(torch.empty(hidden))
        nn.init.xavier_uniform_(self.w_AQ, generator=generator)
        nn.init.xavier_uniform_(self.u_AK, generator=generator)
        nn.init.normal_(self.v_A, std=1 / math.sqrt(hidden), generator=generator)

    def prepare(self, keys_BSK: Tensor) -> Tensor:
        return F.linear(keys_BSK, self.u_AK, self.b_A)

    def forward(self, query_BTQ: Tensor, prepared_BSA: Tensor) -> Tensor:
        return torch.tanh((query_BTQ @ self.w_AQ.mT)[:, :, None] + prepared_BSA[:, None]) @ self.v_A


@final
class Location(Score):
    """`W q`, one row of W for each source position (Luong et al. 2015): the keys are not looked at."""

    def __init__(self, query_width: int, *, longest: int, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.w_LQ = nn.Parameter(torch.empty(longest, query_width))
        nn.init.xavier_uniform_(self.w_LQ, generator=generator)

    def forward(self, query_BTQ: Tensor, prepared_BSA: Tensor) -> Tensor:
        source = prepared_BSA.shape[1]
        if source > len(self.w_LQ):
            raise UserError(
                f"the source has {source} positions, a location score was built for {len(self.w_LQ)}",
                fix="build it with a larger `longest`, or choose another score",
            )
        return query_BTQ @ self.w_LQ[:source].mT


def make_score(
    kind: ScoreKind,
    *,
    query_width: int,
    key_width: int,
    hidden: int | None = None,
    longest: int = 256,
    generator: torch.Generator | None = None,
) -> Score:
    """A score by name. The dot products need queries and keys of one width."""
    if kind in ("dot", "scaled_dot", "cosine") and query_width != key_width:
        raise UserError(
            f"a {kind} score needs queries and keys of one width, not {query_width} and {key_width}",
            fix="use 'general' or 'additive', or make the widths equal",
        )
    match kind:
        case "dot":
            return Dot(key_width, scaled=False)
        case "scaled_dot":
            return Dot(key_width, scaled=True)
        case "cosine":
            return Cosine()
        case "general":
            return General(query_width, key_width, generator=generator)
        case "additive":
            return Additive(query_width, key_width, hidden=hidden or key_width, generator=generator)
        case "concat":
            return Additive(query_width, key_width, hidden=hidden or key_width, bias=False, generator=generator)
        case "location":
            return Location(query_width, longest=longest, generator=generator)
        case _:
            assert_never(kind)
