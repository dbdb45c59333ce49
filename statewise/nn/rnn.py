"""The twins of torch.nn.RNN and torch.nn.RNNCell: Elman's recurrence.

B batch, I input width, D width.
"""

from typing import cast, final

from torch import Tensor, nn
from torch.nn import functional as F

from statewise.kernels import Choice, Wish
from statewise.kernels.elman import Activation, ElmanWeights, choice, chosen, elman, elman_packed, elman_step
from statewise.nn.call import Given, State
from statewise.nn.cell import Cell
from statewise.nn.recurrent import LayerWeights, Recurrent, flat_weights, why_batched_is_slower
from statewise.nn.stack import Layer, vector_layer


def _for_kernel(weights: LayerWeights, nonlinearity: str) -> ElmanWeights:
    return ElmanWeights(weights.ih_GI, weights.hh_GP, weights.b_G, cast(Activation, nonlinearity))


@final
class RNN(Recurrent, nn.RNN):
    """`torch.nn.RNN` on our kernels: its constructor, parameters, arguments, results and errors."""

    def _kernel_choice(self, batch: int) -> Choice:
        ih_DI, hh_DD = flat_weights(self)[:2]
        return chosen(ElmanWeights(ih_DI, hh_DD, hh_DD), wish=self.kernel, batch=batch)

    def _slower(self, input: Given) -> str | None:
        return why_batched_is_slower(self, input)

    def _layer(self, weights: LayerWeights, wish: Wish) -> Layer:
        return vector_layer(elman, elman_packed, _for_kernel(weights, self.nonlinearity), wish)


@final
class RNNCell(Cell, nn.RNNCell):
    """`torch.nn.RNNCell`, open to a lens."""

    def _kernel_choice(self) -> Choice:
        return choice(ElmanWeights(self.weight_ih, self.weight_hh, self.weight_hh), wish=self.kernel)

    def _step(self, x_BI: Tensor, state: State, weights: LayerWeights) -> State:
        kernel_weights = _for_kernel(weights, self.nonlinearity)
        return (elman_step(F.linear(x_BI, kernel_weights.w_DI, kernel_weights.b_D), state[0], kernel_weights),)
