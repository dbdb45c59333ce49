"""What a search has written: tokens, how likely they are, and where in the source each was found.

N rows, S source time.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from statewise.core import Machine, lens
from statewise.models import ConditionalMachine
from statewise.specs import UserError


class Hypothesis(NamedTuple):
    tokens: tuple[int, ...]  # without the end symbol
    score: float  # what hypotheses are ranked by
    log_probability: float  # by the model itself, the end symbol included
    alignment: Tensor | None = None  # [tokens, S], weights over the source


def alignment_tap(model: Machine[Any]) -> str:
    """The name under which the model shows where it looks, or a refusal."""
    looks = model.looks if isinstance(model, ConditionalMachine) else None
    if looks is None:
        raise UserError(
            f"{type(model).__name__} looks at no source, so there are no alignments",
            fix="ask for none (align=False, coverage_penalty=0), or train a model with context = 'attention'",
        )
    return looks


def step_and_look(model: Machine[Any], token_N: Tensor, state: Any, tap: str | None) -> tuple[Tensor, Any, Tensor]:
    """One step, and where it looked: `[N, S]`, the mean over heads and hops; `[N, 0]` where nobody asks."""
    if tap is None:
        logits_NV, state = model.step(token_N, state)
        return logits_NV, state, logits_NV[:, :0]
    with lens(tap) as seen:
        logits_NV, state = model.step(token_N, state)
    return logits_NV, state, torch.stack([weights.mean(1) for weights in seen.seen[tap]]).mean(0)


def log_probabilities(logits_NV: Tensor) -> Tensor:
    """At least in float32; refused where they are no numbers."""
    log_p_NV = logits_NV.to(torch.promote_types(logits_NV.dtype, torch.float32)).log_softmax(-1)
    if bool(log_p_NV.isnan().any()):
        raise broken_outputs()
    return log_p_NV


def broken_outputs() -> UserError:
    return UserError("the model's outputs are not numbers", fix="its weights are broken; train it again")


def check_never(never: Sequence[int], *, vocab: int) -> None:
    for token in never:
        if not 0 <= token < vocab:
            raise UserError(f"never names token {token}, but this model's vocabulary has {vocab}")
    if len(set(never)) == vocab:
        raise UserError("nothing can be written: every token is forbidden", fix="forbid fewer tokens")


def check_limits(*, vocab: int, end_id: int | None, never: Sequence[int], min_length: int, longest_B: Tensor) -> None:
    check_never(never, vocab=vocab)
    if end_id is not None and not 0 <= end_id < vocab:
        raise UserError(f"end_id names token {end_id}, but this model's vocabulary has {vocab}")
    if end_id is not None and end_id in never:
        raise UserError(f"token {end_id} is the end symbol, so it cannot be in `never`")
    if end_id is None and int(longest_B.min()) < 1:
        raise UserError("max_length = 0 without an end symbol leaves nothing to write", fix="max_length of at least 1")
    if min_length < 0 or int(longest_B.min()) < min_length:
        raise UserError(
            f"min_length = {min_length} and max_length = {int(longest_B.min())} leave no length to write",
            fix="0 <= min_length <= max_length",
        )


def limits(max_length: int | Tensor, batch: int, device: torch.device) -> Tensor:
    """`[B]`: the most tokens each row may write."""
    if isinstance(max_length, int):
        return torch.full((batch,), max_length, device=device)
    if max_length.shape != (batch,) or max_length.is_floating_point():
        raise UserError(f"max_length must be one whole number, or {batch} of them; got {list(max_length.shape)}")
    return max_length.to(device)
