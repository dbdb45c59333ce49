"""Symbols to features: what every machine that ends by itself reads with.

B batch, T time, E embedding width, D feature width.
"""

from typing import Any

from torch import Tensor, nn

from statewise.core import Machine, State
from statewise.layers import Dropout, Embedding


class Body(nn.Module):
    """Symbols (content and edge) to features: an embedding, and any machine over vectors.

    With `tie`, who chooses symbols from the features uses the embedding's matrix once more.
    """

    def __init__(
        self,
        *,
        embedding: Embedding,
        machine: Machine[Any],
        width: int,
        input_dropout: Dropout | None = None,
        tie: bool = False,
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.input_dropout = input_dropout or Dropout(0.0)
        self.machine = machine
        self.width = width
        self.tie = tie

    @property
    def vocab(self) -> int:
        """Content symbols; the edge is the symbol after them."""
        return self.embedding.weight.shape[0] - 1

    def read(
        self, tokens_BT: Tensor, state: "State | None", lengths_B: Tensor | None, *, told_BTE: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """`told_BTE` is added to the vectors of the symbols."""
        x_BTE = self.embedding(tokens_BT)
        x_BTE = x_BTE if told_BTE is None else x_BTE + told_BTE
        y_BTD, after = self.machine(self.input_dropout(x_BTE), state, lengths_B)
        return y_BTD, after
