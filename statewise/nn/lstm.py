"""The twins of torch.nn.LSTM and torch.nn.LSTMCell.

B batch, I input width, D width, P output width, G four times D.
"""

from typing import Any, final

from torch import Tensor, nn

from statewise.kernels import Choice, Wish
from statewise.kernels.lstm import LSTMWeights, choice, chosen, lstm, lstm_step, project_input
from statewise.nn.call import Given, State
from statewise.nn.cell import Cell
from statewise.nn.recurrent import LayerWeights, Recurrent, flat_weights, is_on_cpu
from statewise.nn.stack import Layer, Result


def _for_kernel(weights: LayerWeights) -> LSTMWeights:
    return LSTMWeights(weights.ih_GI, weights.hh_GP, weights.b_G, projection_PD=weights.hr_PD)


def _parts_of(hx: Any) -> tuple[Any, ...] | None:
    """Whatever else was given in place of a pair goes on as it is, for torch.nn to refuse."""
    if hx is None:
        return None
    return tuple(hx) if isinstance(hx, tuple | list) else (hx,)


@final
class LSTM(Recurrent, nn.LSTM):
    """`torch.nn.LSTM` on our kernels: its constructor, parameters, arguments, results and errors."""

    def _widths(self) -> tuple[int, ...]:
        return (self.proj_size or self.hidden_size, self.hidden_size)

    def _parts(self, hx: Any) -> tuple[Any, ...] | None:
        return _parts_of(hx)

    def _joined(self, state: State) -> Any:
        return state

    def _kernel_choice(self, batch: int) -> Choice:
        ih_GI, hh_GP = flat_weights(self)[:2]
        projection_PD = flat_weights(self)[-1] if self.proj_size else None
        return chosen(LSTMWeights(ih_GI, hh_GP, hh_GP, projection_PD=projection_PD), wish=self.kernel, batch=batch)

    def _slower(self, input: Given) -> str | None:
        if is_on_cpu(input):
            return "PyTorch's op over the whole stack is the fastest on a CPU"
        return None

    def _layer(self, weights: LayerWeights, wish: Wish) -> Layer:
        kernel_weights = _for_kernel(weights)

        def layer(x_BTI: Tensor, state: State | None, lengths_B: Tensor | None) -> Result:
            h_BP, c_BD = state or (None, None)
            y_BTP, h_BP, c_BD = lstm(x_BTI, h_BP, c_BD, kernel_weights, lengths_B, wish=wish)
            return y_BTP, (h_BP, c_BD)

        return Layer(layer, apart=wish == "persistent")


@final
class LSTMCell(Cell, nn.LSTMCell):
    """`torch.nn.LSTMCell`, open to a lens."""

    _count = 2

    def _parts(self, hx: Any) -> tuple[Any, ...] | None:
        return _parts_of(hx)

    def _joined(self, state: State) -> Any:
        return state

    def _kernel_choice(self) -> Choice:
        return choice(LSTMWeights(self.weight_ih, self.weight_hh, self.weight_hh), wish=self.kernel)

    def _step(self, x_BI: Tensor, state: State, weights: LayerWeights) -> State:
        kernel_weights = _for_kernel(weights)
        h_BD, c_BD = state
        return lstm_step(project_input(x_BI, kernel_weights), h_BD, c_BD, kernel_weights)
