"""What the recurrent twins share: from a forward's arguments to layers of kernels, and back.

B batch, T time, I input width, D width, P output width, G gates times D.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from statewise.kernels import Choice, Wish, is_asked
from statewise.nn.call import Call, Given, State, as_one_call, is_symbolic, read_call
from statewise.nn.stack import Layer, run_stack

_NO_GRADIENT = "without a gradient PyTorch's op is the fastest on a CPU"


class LayerWeights(NamedTuple):
    """One layer in one direction, as torch.nn stores it."""

    ih_GI: Tensor
    hh_GP: Tensor
    b_ih_G: Tensor | None
    b_hh_G: Tensor | None
    hr_PD: Tensor | None

    @property
    def b_G(self) -> Tensor:
        """Both biases, where only their sum means anything."""
        if self.b_ih_G is None or self.b_hh_G is None:
            return self.hh_GP.new_zeros(len(self.hh_GP))
        return self.b_ih_G + self.b_hh_G


class Recurrent(nn.RNNBase):
    """The half of a twin that stands before its torch.nn class: ours where it gains, `super()` everywhere else.

    A twin is a `torch.nn` module of its kind and adds no attribute to the object, so that the one can become the
    other by its class alone. `kernel` names the implementation that is wished for.
    """

    kernel: Wish = "auto"

    def choice(self, input: Given, hx: Any = None) -> Choice:
        """Which implementation `forward` will run for these arguments, and why; "fused" is torch.nn's own."""
        plan = self._plan(input, hx)
        return Choice("fused", plan) if isinstance(plan, str) else plan[0]

    def forward(self, input: Any, hx: Any = None) -> Any:
        if is_symbolic(self, input):
            return as_one_call(self, input, hx)
        # Compilers and tracers should not read how we decide: they know torch.nn's op and get that.
        if not torch.compiler.is_compiling() and torch._C._get_tracing_state() is None:
            plan = self._plan(input, hx)
            if not isinstance(plan, str):
                y, state = _as_given(self, input, *self._serve(*plan))
                return y, self._joined(state)
        return super().forward(input, hx)

    def _plan(self, input: Given, hx: Any) -> tuple[Choice, Call] | str:
        """Which of our kernels is to run on what, or why it is torch.nn's op over the whole stack."""
        asked = is_asked(self.kernel)  # a lens and a wish are obeyed, whatever they cost
        if not asked and (slower := self._slower(input)) is not None:
            return slower
        # As torch.nn does before each call: whoever reparametrises a weight puts another tensor in its place.
        self._update_flat_weights()
        call = read_call(self, input, self._parts(hx), self._widths())
        if isinstance(call, str):
            return call
        chosen = self._kernel_choice(call.batch)
        if chosen.implementation == "fused" or (chosen.implementation == "naive" and not asked):
            return chosen.reason
        return chosen, call

    def _serve(self, chosen: Choice, call: Call) -> tuple[Tensor, State]:
        """Outputs and state in the order of the call."""
        device = call.x.device.type
        if not torch.is_autocast_enabled(device):
            return self._run(chosen, call)
        lowered = torch.get_autocast_dtype(device)
        with torch.autocast(device, enabled=False):
            state = None if call.state is None else tuple(part.to(lowered) for part in call.state)
            return self._run(chosen, call._replace(x=call.x.to(lowered), state=state))

    def _run(self, chosen: Choice, call: Call) -> tuple[Tensor, State]:
        """All in the dtype of the input."""
        dtype = call.x.dtype
        layers = [self._layer(weights, chosen.implementation) for weights in self._layer_weights(dtype)]
        y, state = run_stack(self, call, layers, call.state)
        return as_dtype(y, dtype), tuple(as_dtype(part, dtype) for part in state)

    def _layer_weights(self, dtype: torch.dtype) -> Iterator[LayerWeights]:
        """From the lowest layer, in each the forward direction first."""
        flat: Iterator[Tensor] = (as_dtype(weight, dtype) for weight in flat_weights(self))
        for _ in range(self.num_layers * (2 if self.bidirectional else 1)):
            ih_GI, hh_GP = next(flat), next(flat)
            b_ih_G, b_hh_G = (next(flat), next(flat)) if self.bias else (None, None)
            yield LayerWeights(ih_GI, hh_GP, b_ih_G, b_hh_G, next(flat) if self.proj_size else None)

    # What each twin says of itself.

    def _widths(self) -> tuple[int, ...]:
        """Those of the parts of the state."""
        return (self.hidden_size,)

    def _parts(self, hx: Any) -> tuple[Any, ...] | None:
        return None if hx is None else (hx,)

    def _joined(self, state: State) -> Any:
        return state[0]

    def _kernel_choice(self, batch: int) -> Choice:
        raise NotImplementedError

    def _slower(self, input: Given) -> str | None:
        """Why torch.nn's op is faster for this input, where that is known beforehand."""
        raise NotImplementedError

    def _layer(self, weights: LayerWeights, wish: Wish) -> Layer:
        raise NotImplementedError


def as_dtype(value: Tensor, dtype: torch.dtype) -> Tensor:
    return value if value.dtype == dtype else value.to(dtype)


def flat_weights(module: nn.RNNBase) -> list[Tensor]:
    """torch.nn's own list, layer by layer and direction by direction."""
    return cast(list[Tensor], module._flat_weights)


def is_on_cpu(given: Any) -> bool:
    """Not so of what is neither a tensor nor packed."""
    if isinstance(given, Tensor):
        return given.is_cpu
    return isinstance(given, PackedSequence) and given.data.is_cpu


_ENOUGH = 16  # time steps
_MANY_ROWS = 128  # a step's products are then most of its time, and they are the same on both sides


def why_batched_is_slower(module: nn.RNNBase, given: Given) -> str | None:
    """On a CPU our own backward is worth its calls over enough time steps, and without a gradient never.

    `benchmarks/nn.py --kernel batched` prints what it gains and loses. The cheap questions come first: of a
    single time step, the whole of torch.nn's op takes little longer than asking.
    """
    if not is_on_cpu(given):
        return None
    if not torch.is_grad_enabled():
        return _NO_GRADIENT
    packed = given if isinstance(given, PackedSequence) else None
    x = given.data if isinstance(given, PackedSequence) else given
    if x.dim() == 0:
        return None
    time_axis = 1 if module.batch_first and x.dim() == 3 else 0
    if (x.shape[time_axis] if packed is None else len(packed.batch_sizes)) < _ENOUGH:
        return "on a CPU our backward gains on longer rows alone"
    if packed is None and x.dim() == 3 and x.shape[1 - time_axis] >= _MANY_ROWS:
        return "on a CPU our backward gains nothing on so many rows"
    if not any(tensor.requires_grad for tensor in (*flat_weights(module), x)):
        return _NO_GRADIENT
    return None


def _as_given(module: nn.RNNBase, given: Given, y: Tensor, state: State) -> tuple[Given, State]:
    """Outputs in the form of the input: packed, with or without a batch, batch or time first."""
    if isinstance(given, PackedSequence):
        _, sizes_T, order_B, inverse_B = given
        if inverse_B is not None:
            state = tuple(part.index_select(1, inverse_B) for part in state)
        return PackedSequence(y, sizes_T, order_B, inverse_B), state
    if given.dim() == 2:
        return y[:, 0], tuple(part[:, 0] for part in state)
    return (y.transpose(0, 1) if module.batch_first else y), state
