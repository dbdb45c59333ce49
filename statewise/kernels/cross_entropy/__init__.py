"""The cross-entropy of a linear map: written out, in chunks that never hold all logits, and the choice between them.

N tokens, D features, V vocabulary.
"""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from statewise.kernels.cross_entropy import chunked, naive

Form = Literal["naive", "chunked"]


class FormChoice(NamedTuple):
    form: Form
    reason: str


def choice(*, tokens: int, vocab: int, device: torch.device) -> FormChoice:
    """By size alone: whose logits fit into one chunk gains nothing from walking through it."""
    chunk = naive.chunk_tokens(vocab, device)
    if tokens <= chunk:
        return FormChoice("naive", f"the logits of {tokens:,} tokens are one chunk of at most {chunk:,}")
    return FormChoice("chunked", f"{tokens:,} tokens x {vocab:,} logits are held {chunk:,} tokens at a time")


def total_nats(
    y_ND: Tensor,
    weight_VD: Tensor,
    bias_V: Tensor | None,
    target_N: Tensor,
    *,
    share_N: Tensor | None = None,
    smoothing: float = 0.0,
    form: Form | None = None,
) -> Tensor:
    """The sum of all tokens' nats, each counted by its share; where that is 0, nothing of the token is read."""
    if share_N is not None:
        absent_N = share_N == 0
        y_ND, target_N = y_ND.masked_fill(absent_N[:, None], 0.0), target_N.masked_fill(absent_N, 0)
    form = form or choice(tokens=len(y_ND), vocab=len(weight_VD), device=y_ND.device).form
    run = naive.total_nats if form == "naive" else chunked.total_nats
    return run(y_ND, weight_VD, bias_V, target_N, share_N, smoothing)


@torch.no_grad()
def token_nats(
    y_ND: Tensor,
    weight_VD: Tensor,
    bias_V: Tensor | None,
    target_N: Tensor,
    *,
    smoothing: float = 0.0,
    form: Form | None = None,
) -> Tensor:
    """The nats of each token, without gradients."""
    form = form or choice(tokens=len(y_ND), vocab=len(weight_VD), device=y_ND.device).form
    run = naive.token_nats if form == "naive" else chunked.token_nats
    return run(y_ND, weight_VD, bias_V, target_N, smoothing)
