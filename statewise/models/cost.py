"""What a model costs: parameters, FLOPs and bytes of state, measured on a model that is built without memory.

FLOPs are those of matrix products as `torch.utils.flop_counter` counts them: a product of an m × k with a k × n matrix
is 2 m n k. Each op runs in its naive implementation, token by token where a model has a `step`, so padding and what a
parallel implementation computes and then masks do not count.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from statewise.core import Machine, leaves, state_bytes
from statewise.kernels import force

T = TypeVar("T")
M = TypeVar("M", bound=nn.Module)

_READ = 1024  # tokens that are read at most; beyond that, linear growth is extrapolated
# What initialisers do to weights. On the meta device it is Python code that loads PyTorch's compiler, which takes as
# long as loading PyTorch.
_ELEMENTWISE = {"normal_", "uniform_", "log_", "log", "exp", "expm1", "logit", "neg", "add", "mul"}


class Cost(NamedTuple):
    parameters: int
    flops: int  # of one more token
    state_bytes: int


class _Unfilled(TorchFunctionMode):
    """Leaves out what fills weights with numbers: on the meta device there are none."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__module__", "") == "torch.nn.init":
            return args[0] if args else kwargs["tensor"]
        if getattr(func, "__name__", "") in _ELEMENTWISE:
            tensors = [argument for argument in args if isinstance(argument, Tensor)]
            if len({tensor.shape for tensor in tensors}) == 1:
                return tensors[0]
        return func(*args, **kwargs)


@contextmanager
def on_meta() -> Iterator[None]:
    """Modules that are built inside this block have shapes and no memory."""
    with torch.device("meta"), _Unfilled():
        yield


def measured(build: Callable[[], M], measure: Callable[[M], T]) -> T:
    """`measure` on a model without memory, or on a real one where the code of a user's mixer reads numbers."""
    with torch.no_grad(), force("naive"):
        try:
            with on_meta():
                model = build().eval()
            with torch.device("meta"):
                return measure(model)
        except (RuntimeError, NotImplementedError):
            return measure(build().eval())


def num_parameters(build: Callable[[], nn.Module]) -> int:
    return measured(build, lambda model: sum(p.numel() for p in model.parameters()))


def cost_of(build: Callable[[], Machine[Any]], *, context: int = 0) -> Cost:
    """Of a machine that reads tokens: what one more token costs after `context` of them, for one row."""

    def measure(machine: Machine[Any]) -> Cost:
        state = state_after(machine, context)
        parameters = sum(p.numel() for p in machine.parameters())
        return Cost(parameters, counted(lambda: machine.step(step_input(machine), state)), state_bytes(state))

    return measured(build, measure)


def counted(call: Callable[[], object]) -> int:
    from torch.utils.flop_counter import FlopCounterMode  # its import takes a tenth of a second

    with FlopCounterMode(display=False) as counter:
        call()
    return int(counter.get_total_flops())


@torch.no_grad()
def context_bytes(model: Machine[Any], tokens: int) -> int:
    """Bytes of one row's state after `tokens` tokens.

    A state that grows is measured by reading. For more than a few thousand tokens its growth is measured over two
    stretches and extrapolated if both agree.
    """
    model = model.eval()
    if tokens <= 2 * _READ or not grows(model.init_state(1)):
        return state_bytes(state_after(model, tokens))
    first, second, third = (state_bytes(state_after(model, count * _READ // 2)) for count in (1, 2, 3))
    if second - first != third - second:
        return state_bytes(state_after(model, tokens))
    per_token, rest = divmod(second - first, _READ // 2)
    assert rest == 0
    return first + per_token * (tokens - _READ // 2)


def grows(state: Any) -> bool:
    """A state without an empty axis at the beginning has a fixed size."""
    return not all(leaf.numel() for _, leaf in leaves(state))


def state_after(machine: Machine[Any], tokens: int) -> Any:
    """The state after `tokens` tokens, or one of the same size."""
    state = machine.init_state(1)
    if tokens == 0 or not grows(state):
        return state
    x = step_input(machine)
    for begin in range(0, tokens, _READ):
        length = min(_READ, tokens - begin)
        _, state = machine(x[:, None].expand(1, length, *x.shape[1:]), state)
    return state


def step_input(machine: Machine[Any]) -> Tensor:
    """For one step of one row."""
    with torch.device("cpu"):
        return machine.sample_input(1, 1, generator=torch.Generator().manual_seed(0))[:, 0]
