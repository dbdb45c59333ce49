"""The twins of torch.nn.GRU and torch.nn.GRUCell.

B batch, I input width, D width, G three times D.
"""

from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from statewise.kernels import Choice, Wish
from statewise.kernels.gru import GRUWeights, choice, chosen, gru, gru_packed, gru_step
from statewise.nn.call import Given, State
from statewise.nn.cell import Cell
from statewise.nn.recurrent import LayerWeights, Recurrent, flat_weights, why_batched_is_slower
from statewise.nn.stack import Layer, vector_layer


def _for_kernel(weights: LayerWeights) -> GRUWeights:
    """Of the state's three biases the candidate's alone stays inside the reset; the others add to the input's."""
    width = weights.hh_GP.shape[1]
    if weights.b_ih_G is None or weights.b_hh_G is None:
        return GRUWeights(weights.ih_GI, weights.hh_GP, weights.b_G, weights.hh_GP.new_zeros(width))
    gates, candidate = torch.split_with_sizes(weights.b_hh_G, [2 * width, width])
    return GRUWeights(weights.ih_GI, weights.hh_GP, weights.b_ih_G + F.pad(gates, (0, width)), candidate)


@final
class GRU(Recurrent, nn.GRU):
    """`torch.nn.GRU` on our kernels: its constructor, parameters, arguments, results and errors."""

    def _kernel_choice(self, batch: int) -> Choice:
        ih_GI, hh_GD = flat_weights(self)[:2]
        return chosen(GRUWeights(ih_GI, hh_GD, hh_GD, hh_GD), wish=self.kernel, batch=batch)

    def _slower(self, input: Given) -> str | None:
        return why_batched_is_slower(self, input)

    def _layer(self, weights: LayerWeights, wish: Wish) -> Layer:
        return vector_layer(gru, gru_packed, _for_kernel(weights), wish)


@final
class GRUCell(Cell, nn.GRUCell):
    """`torch.nn.GRUCell`, open to a lens."""

    def _kernel_choice(self) -> Choice:
        hh_GD = self.weight_hh
        return choice(GRUWeights(self.weight_ih, hh_GD, hh_GD, hh_GD), wish=self.kernel)

    def _step(self, x_BI: Tensor, state: State, weights: LayerWeights) -> State:
        kernel_weights = _for_kernel(weights)
        return (gru_step(F.linear(x_BI, kernel_weights.w_GI, kernel_weights.b_G), state[0], kernel_weights),)
