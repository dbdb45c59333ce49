"""What one forward of a twin was given, and whether our kernels may serve it.

Whatever is irregular (a wrong shape, another dtype, a tracer looking on) is left to torch.nn's own forward, so
that its errors and its behaviour there are exactly its own.

B batch, T time, I input width, N packed time steps, L layers times directions.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.fx import Proxy
from torch.nn.utils.rnn import PackedSequence

from statewise.core import is_observed

State = tuple[Tensor, ...]
Given = Tensor | PackedSequence

_PLAIN = {Tensor, nn.Parameter}
_LOWERED = (torch.float32, torch.bfloat16, torch.float16)  # what autocast brings to its own precision


class Call(NamedTuple):
    """A regular input and its state, rows in the order in which they are stored."""

    x: Tensor  # [T, B, I], or [N, I] when packed
    sizes_T: Tensor | None  # rows at each time step of a packed input
    state: State | None  # every part [L, B, ...]
    batch: int
    time: int


def read_call(module: nn.RNNBase, given: Given, state: Sequence[Tensor] | None, widths: tuple[int, ...]) -> Call | str:
    """The call, or why it is torch.nn's to serve. `widths` are those of the state's parts."""
    packed = given if isinstance(given, PackedSequence) else None
    x = given.data if isinstance(given, PackedSequence) else given
    tensors = [x, *(state or ()), *cast(list[Tensor], module._flat_weights)]
    if why := irregular(tensors):
        return why
    if x.shape[-1] != module.input_size:
        return "the input has another width"
    if packed is not None:
        return _packed_call(module, packed, state, widths)
    if x.dim() not in (2, 3):
        return "the input has neither two axes nor three"
    if x.dim() == 2:
        x = x[:, None]
        if state is not None:
            if any(part.dim() != 2 for part in state):
                return "the state has other axes than the input"
            state = [part[:, None] for part in state]
    elif module.batch_first:
        x = x.transpose(0, 1)
    return _call(module, Call(x, None, None, x.shape[1], x.shape[0]), state, widths)


def _packed_call(
    module: nn.RNNBase, packed: PackedSequence, state: Sequence[Tensor] | None, widths: tuple[int, ...]
) -> Call | str:
    if packed.data.dim() != 2:
        return "the packed input has not two axes"
    time, batch = len(packed.batch_sizes), int(packed.batch_sizes[0])
    if state is not None and any(part.dim() != 3 or part.shape[1] != batch for part in state):
        return "the state has another shape"
    if state is not None and packed.sorted_indices is not None:
        state = [part.index_select(1, packed.sorted_indices) for part in state]
    return _call(module, Call(packed.data, packed.batch_sizes, None, batch, time), state, widths)


def _call(module: nn.RNNBase, call: Call, state: Sequence[Tensor] | None, widths: tuple[int, ...]) -> Call | str:
    if call.batch == 0 or call.time == 0:
        return "the input is empty"
    if state is None:
        return call
    layers = module.num_layers * (2 if module.bidirectional else 1)
    shapes = [(layers, call.batch, width) for width in widths]
    if [tuple(part.shape) for part in state] != shapes:
        return "the state has another shape"
    return call._replace(state=tuple(state))


def irregular(tensors: Sequence[Tensor]) -> str | None:
    """Why these cannot go to a kernel: somebody traces or transforms what is computed, or they do not fit together."""
    if why := _traced():
        return why
    first = tensors[0]
    # A fake, distributed or otherwise special tensor is told from a plain one by its type alone.
    if not {type(tensor) for tensor in tensors} <= _PLAIN:
        return "a tensor is of a special kind"
    device = first.device
    if device.type == "meta" or len({tensor.device for tensor in tensors}) > 1:
        return "tensors are on other devices"
    if first.is_nested or first.layout is not torch.strided:
        return "the input is not a plain array"
    if torch.is_autocast_enabled(device.type):
        if device.type != "cuda" and not is_observed():
            return "autocast is on, and on this device PyTorch has rules of its own for each op"
        return None if all(tensor.dtype in _LOWERED for tensor in tensors) else "autocast leaves these dtypes alone"
    if len({tensor.dtype for tensor in tensors}) > 1 or not first.dtype.is_floating_point:
        return "dtypes differ"
    return None


def _traced() -> str | None:
    if torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None:
        return "a compiler or tracer reads along, and knows PyTorch's op"
    if torch._C._functorch.maybe_current_level() is not None:
        return "inside a transform of torch.func"
    if forward_ad._current_level >= 0:
        return "inside forward-mode differentiation"
    if torch._C._len_torch_dispatch_stack() > 0:
        return "a dispatch mode watches PyTorch's ops"
    return None


def is_symbolic(module: nn.Module, given: Any) -> bool:
    """Whether torch.fx calls a module inside the one it traces, with a symbol in place of a tensor.

    torch.fx records every module of torch.nn as one call and traces into all others. Our modules record themselves as
    torch.fx would have recorded the module that they replace.
    """
    return isinstance(given, Proxy) and getattr(given.tracer, "root", None) is not module


def as_one_call(module: nn.Module, given: Proxy, hx: Any) -> Any:
    name = given.tracer.path_of_module(module)  # type: ignore[attr-defined]  # its base class has no word for it
    return given.tracer.create_proxy("call_module", name, (given,) if hx is None else (given, hx), {})
