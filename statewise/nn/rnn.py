"""The twins of torch.nn.RNN and torch.nn.RNNCell: Elman's recurrence.

B batch, I input width, D width.
"""

from typing import cast, final

from torch import Tensor, nn
from torch.nn import functional as F

from statewise.kernels.choice import Choice, Wish
from statewise.kernels.elman import Activation, ElmanWeights, choice, elman, elman_moments, elman_step
from statewise.nn.call import Given, State
from statewise.nn.cell import Cell
from statewise.nn.recurrent import LayerWeights, Recurrent, flat_weights, why_batched_is_slower
from statewise.nn.stack import Layer, Result


def _for_kernel(weights: LayerWeights, nonlinearity: str) -> ElmanWeights:
    return ElmanWeights(weights.ih_GI, weights.hh_GP, weights.b_G, cast(Activation, nonlinearity))


@final
class RNN(Recurrent, nn.RNN):
    """`torch.nn.RNN` on our kernels: its constructor, parameters, arguments, results and errors."""

    def _kernel_choice(self, batch: int) -> Choice:
        ih_DI, hh_DD = flat_weights(self)[:2]
        return choice(ElmanWeights(ih_DI, hh_DD, hh_DD[0]), wish=self.kernel, batch=batch)

    def _slower(self, input: Given) -> str | None:
        return why_batched_is_slower(self, input, enough=16)

    def _layer(self, weights: LayerWeights, wish: Wish) -> Layer:
        kernel_weights = _for_kernel(weights, self.nonlinearity)

        def layer(x_BTI: Tensor, state: State, lengths_B: Tensor | None) -> Result:
            y_BTD, h_BD = elman(x_BTI, state[0], kernel_weights, lengths_B, wish=wish)
            return y_BTD, (h_BD,)

        if wish != "batched":
            return Layer(layer)
        return Layer(layer, lambda x_NI, state, rows: elman_moments(x_NI, state[0], kernel_weights, rows))


@final
class RNNCell(Cell, nn.RNNCell):
    """`torch.nn.RNNCell`, open to a lens."""

    def _kernel_choice(self) -> Choice:
        return choice(ElmanWeights(self.weight_ih, self.weight_hh, self.weight_hh[0]), wish=self.kernel)

    def _step(self, x_BI: Tensor, state: State, weights: LayerWeights) -> State:
        kernel_weights = _for_kernel(weights, self.nonlinearity)
        return (elman_step(F.linear(x_BI, kernel_weights.w_DI, kernel_weights.b_D), state[0], kernel_weights),)
