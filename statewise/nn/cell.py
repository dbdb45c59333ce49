"""What the twins of torch.nn's cells share. One step has no time to batch: PyTorch's op runs unless a lens is open.

B batch, I input width, D width.
"""

from typing import Any

import torch
from torch import Tensor, nn

from statewise.kernels import Choice, Wish, is_asked
from statewise.nn.call import State, as_one_call, irregular, is_symbolic
from statewise.nn.recurrent import LayerWeights


class Cell(nn.RNNCellBase):
    """The half of a twin that stands before its torch.nn class: the equation for those who look, `super()` else."""

    kernel: Wish = "auto"

    def choice(self, input: Tensor, hx: Any = None) -> Choice:
        """Which implementation `forward` will run for these arguments, and why; "fused" is torch.nn's own."""
        if not is_asked(self.kernel):
            return Choice("fused", "one step has no time to batch, and PyTorch's op is the fastest for it")
        parts = self._parts(hx)
        weights = (self.weight_ih, self.weight_hh, *((self.bias_ih, self.bias_hh) if self.bias else ()))
        if why := irregular([input, *(parts or ()), *weights]):
            return Choice("fused", why)
        shape = (*input.shape[:-1], self.hidden_size)
        if input.dim() not in (1, 2) or input.shape[-1] != self.input_size:
            return Choice("fused", "the input has another shape")
        if parts is not None and (len(parts) != self._count or any(tuple(part.shape) != shape for part in parts)):
            return Choice("fused", "the state has another shape")
        chosen = self._kernel_choice()
        return chosen if chosen.implementation == "naive" else Choice("fused", chosen.reason)

    def forward(self, input: Any, hx: Any = None) -> Any:
        if is_symbolic(self, input):
            return as_one_call(self, input, hx)
        # The first question is for compilers, which should read no further.
        if torch.compiler.is_compiling() or self.choice(input, hx).implementation == "fused":
            return super().forward(input, hx)
        parts = self._parts(hx)
        x_BI = input if input.dim() == 2 else input[None]
        if parts is None:
            state = tuple(x_BI.new_zeros(len(x_BI), self.hidden_size) for _ in range(self._count))
        else:
            state = parts if input.dim() == 2 else tuple(part[None] for part in parts)
        after = self._step(x_BI, state, LayerWeights(self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh, None))
        return self._joined(after if input.dim() == 2 else tuple(part[0] for part in after))

    # What each twin says of itself.

    _count = 1  # parts of the state

    def _parts(self, hx: Any) -> tuple[Any, ...] | None:
        return None if hx is None else (hx,)

    def _joined(self, state: State) -> Any:
        return state[0]

    def _kernel_choice(self) -> Choice:
        raise NotImplementedError

    def _step(self, x_BI: Tensor, state: State, weights: LayerWeights) -> State:
        raise NotImplementedError
