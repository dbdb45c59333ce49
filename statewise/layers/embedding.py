"""Token vectors, with dropout of whole rows: a dropped token is absent everywhere in the batch."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from statewise.core import Described, is_known
from statewise.layers.initialise import are_read_later
from statewise.specs import UserError


class Embedding(Described):
    """`row_dropout` is the embedding dropout of Gal and Ghahramani 2016 and of AWD-LSTM.

    `scale` is the spread of the entries at first, `gain` multiplies what is looked up: a matrix that is also a head
    has small entries, and a gain that undoes this for the reader. `share` uses another one's matrix.
    """

    weight: nn.Parameter

    def __init__(
        self,
        vocab: int,
        width: int,
        *,
        row_dropout: float = 0.0,
        scale: float = 1.0,
        gain: float = 1.0,
        share: "Embedding | None" = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.row_dropout = row_dropout
        self.gain = gain
        if share is not None:
            assert share.weight.shape == (vocab, width)
            self.weight = share.weight
            return
        self.weight = nn.Parameter(torch.empty(vocab, width))
        if not are_read_later():
            nn.init.normal_(self.weight, std=scale, generator=generator)

    def forward(self, tokens: Tensor) -> Tensor:
        weight_VE: Tensor = self.weight
        if self.training and self.row_dropout:
            keep = 1 - self.row_dropout
            weight_VE = weight_VE * torch.empty_like(weight_VE[:, :1]).bernoulli_(keep).div_(keep)
        try:
            x = F.embedding(tokens, weight_VE)
        except (IndexError, RuntimeError):
            check_tokens(tokens, len(weight_VE))  # only here, after the fact: looking at every token would cost time
            raise
        return x if self.gain == 1.0 else self.gain * x


def check_tokens(tokens: Tensor, vocab: int) -> None:
    """Refuse tokens that are not of the vocabulary. On a GPU, PyTorch itself ends the program at such a look-up."""
    if tokens.dtype not in (torch.int64, torch.int32):
        raise UserError(f"tokens have type {tokens.dtype}, expected torch.int64")
    if not is_known(tokens):
        return
    lowest, highest = int(tokens.min()), int(tokens.max())
    if lowest < 0 or highest >= vocab:
        raise UserError(f"tokens hold {lowest if lowest < 0 else highest}, expected numbers from 0 to {vocab - 1}")
