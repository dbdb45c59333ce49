"""A conditional random field over tags: the whole tag sequence is scored, not each tag alone.

B batch, T time, K tags.
"""

from collections.abc import Sequence
from typing import NamedTuple, final

import torch
from torch import Tensor, nn

from statewise.core import Described, check_input
from statewise.kernels.crf import CRFWeights, best_path, log_partition, marginals, path_score
from statewise.specs import UserError


class Forbidden(NamedTuple):
    """True where a path may not go."""

    transition_KK: Tensor  # [from, to]
    start_K: Tensor
    end_K: Tensor


def forbidden_in_bio(names: Sequence[str]) -> Forbidden:
    """What IOB2 rules out: `I-X` may only follow `B-X` or `I-X`. Every span begins with its `B`."""
    for name in names:
        if name != "O" and not (name[:2] in ("B-", "I-") and name[2:]):
            raise UserError(
                f"tag {name!r} is not of the BIO scheme, expected O, B-<kind> or I-<kind>",
                fix="leave the constraint out, or write the tags in IOB2",
            )
    inside_K = [name.startswith("I-") for name in names]
    transition_KK = [
        [inside and not (before != "O" and before[2:] == after[2:]) for after, inside in zip(names, inside_K)]
        for before in names
    ]
    return Forbidden(torch.tensor(transition_KK), torch.tensor(inside_K), torch.zeros(len(names), dtype=torch.bool))


@final
class CRF(Described):
    """`p(y | x) = exp(score(y) - log Z)`, with learned transition, start and end scores (Lafferty et al. 2001)."""

    def __init__(
        self, num_tags: int, *, forbidden: Forbidden | None = None, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        if num_tags < 1:
            raise UserError(f"num_tags = {num_tags} is not valid, expected 1 or more")
        self.num_tags = num_tags
        self.transition_KK = nn.Parameter(torch.empty(num_tags, num_tags))
        self.start_K = nn.Parameter(torch.empty(num_tags))
        self.end_K = nn.Parameter(torch.empty(num_tags))
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -0.1, 0.1, generator=generator)
        # Not in the state dict: what is forbidden follows from the tags.
        self.constrained = forbidden is not None
        nothing = Forbidden(*(torch.zeros_like(p, dtype=torch.bool) for p in self.weights_as_learned()))
        rules = nothing if forbidden is None else forbidden
        for name, rule, like in zip(Forbidden._fields, rules, nothing):
            if rule.shape != like.shape or rule.dtype != torch.bool:
                raise UserError(
                    f"forbidden.{name} is {rule.dtype} {list(rule.shape)}, expected {list(like.shape)} of bool"
                )
            self.register_buffer(f"forbidden_{name}", rule.clone(), persistent=False)
        if forbidden is not None:
            _check_that_paths_exist(forbidden)

    forbidden_transition_KK: Tensor
    forbidden_start_K: Tensor
    forbidden_end_K: Tensor

    def weights_as_learned(self) -> CRFWeights:
        return CRFWeights(self.transition_KK, self.start_K, self.end_K)

    def weights(self) -> CRFWeights:
        """-∞ for forbidden transitions."""
        if not self.constrained:
            return self.weights_as_learned()
        return CRFWeights(
            self.transition_KK.masked_fill(self.forbidden_transition_KK, -torch.inf),
            self.start_K.masked_fill(self.forbidden_start_K, -torch.inf),
            self.end_K.masked_fill(self.forbidden_end_K, -torch.inf),
        )

    def nats_B(self, emissions_BTK: Tensor, tags_BT: Tensor, lengths_B: Tensor | None = None) -> Tensor:
        """`-log p(tags)` of each row: a sum over its time steps."""
        check_input(emissions_BTK, lengths_B, width=self.num_tags)
        if tags_BT.shape != emissions_BTK.shape[:2]:
            raise UserError(f"tags have shape {list(tags_BT.shape)}, expected {list(emissions_BTK.shape[:2])}")
        weights = self.weights()
        score_B = path_score(emissions_BTK, tags_BT, weights, lengths_B)
        if self.constrained:
            self._refuse_forbidden(score_B.detach(), tags_BT, lengths_B)
        return log_partition(emissions_BTK, weights, lengths_B) - score_B

    def decode(self, emissions_BTK: Tensor, lengths_B: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The best tags, 0 past the end, and their score."""
        check_input(emissions_BTK, lengths_B, width=self.num_tags)
        tags_BT, score_B = best_path(emissions_BTK, self.weights(), lengths_B)
        if bool(score_B.isnan().any()):
            raise UserError("the scores of tags are not numbers", fix="the model's weights are broken; train it again")
        return tags_BT, score_B

    def marginals(self, emissions_BTK: Tensor, lengths_B: Tensor | None = None) -> Tensor:
        """The probability of every tag at every time step, 0 past the end."""
        check_input(emissions_BTK, lengths_B, width=self.num_tags)
        return marginals(emissions_BTK, self.weights(), lengths_B)

    def _refuse_forbidden(self, score_B: Tensor, tags_BT: Tensor, lengths_B: Tensor | None) -> None:
        wrong = (score_B == -torch.inf).nonzero()
        if len(wrong):
            row = int(wrong[0])
            length = tags_BT.shape[1] if lengths_B is None else int(lengths_B[row])
            raise UserError(
                f"the tags of row {row} go where it is forbidden: {tags_BT[row, :length].tolist()}",
                fix="correct the tags (in IOB2 every span begins with B), or build the CRF without the constraint",
            )


def _check_that_paths_exist(forbidden: Forbidden) -> None:
    """Refuse rules that leave no path of some length. The set of reachable tags repeats after a while."""
    reached_K = ~forbidden.start_K
    seen: set[tuple[bool, ...]] = set()
    length = 1
    while (key := tuple(reached_K.tolist())) not in seen:
        seen.add(key)
        if not (reached_K & ~forbidden.end_K).any():
            raise UserError(f"no path of length {length} is allowed", fix="forbid less")
        reached_K = (~forbidden.transition_KK[reached_K]).any(0)
        length += 1
