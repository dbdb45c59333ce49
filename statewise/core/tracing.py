"""What PyTorch's own tools need of us: to know that they read along, switches they can read, a loop they can keep.

`torch.compile`, `torch.export`, `torch.jit.trace` and `torch.func` follow tensors through plain ops. `docs/tracing.md`
says what each of them finds in each machine.
"""

import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Generic, Literal, ParamSpec, TypeVar, cast

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import Parameter

P = ParamSpec("P")
R = TypeVar("R")
Tool = Literal["torch.export", "torch.compile", "torch.jit.trace", "torch.func"]

_is_compiling, _is_exporting = torch.compiler.is_compiling, torch.compiler.is_exporting  # looked up once


def transformed() -> bool:
    """Whether `torch.func` or forward-mode differentiation transforms what is computed.

    Then an op must go through autograd's Function, which knows these callers and refuses what it has no rule for.
    """
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def tool() -> Tool | None:
    """Who reads along, if anybody: then no number may be asked for, and only plain ops may run."""
    if _is_compiling():
        return "torch.export" if _is_exporting() else "torch.compile"
    if transformed():
        return "torch.func"
    return "torch.jit.trace" if torch._C._get_tracing_state() is not None else None


def is_known(value: Tensor) -> bool:
    """Whether a number of it may be asked for: it has one, and nobody reads along."""
    return type(value) in (Tensor, Parameter) and not value.is_meta and tool() is None


def uncompiled(run: Callable[P, R]) -> Callable[P, R]:
    """`torch.compiler.disable`, which loads the compiler at once: a second, and most processes never compile."""

    @wraps(run)
    def call(*args: P.args, **named: P.kwargs) -> R:
        if torch.compiler.is_compiling():
            return cast("Callable[P, R]", torch.compiler.disable(run))(*args, **named)  # type: ignore[no-untyped-call]  # torch leaves it untyped
        return run(*args, **named)

    return call


class Switch(Generic[R]):
    """A value for whatever is called inside a block, in this thread or task.

    A compiler cannot read a ContextVar, but it can read `used` and check it at each call: as long as nobody has set the
    value anywhere, it is the default.
    """

    def __init__(self, name: str, default: R) -> None:
        self._inside: ContextVar[R] = ContextVar(name, default=default)
        self._default = default
        self._lock = threading.Lock()
        self.used = 0  # blocks that are open, of all threads

    def get(self) -> R:
        return self._inside.get() if self.used else self._default

    @contextmanager
    def set(self, value: R) -> Iterator[None]:
        with self._lock:
            self.used += 1
        token = self._inside.set(value)
        try:
            yield
        finally:
            self._inside.reset(token)
            with self._lock:
                self.used -= 1


LoopStep = Callable[[Sequence[Tensor], Sequence[Tensor]], tuple[Sequence[Tensor], Tensor]]


def is_symbolic(size: int) -> bool:
    """Whether a size stands for any number: a loop over it cannot be written out."""
    return isinstance(size, torch.SymInt)


def kept_loop(step: LoopStep, state: Sequence[Tensor], inputs: Sequence[Tensor]) -> tuple[list[Tensor], Tensor]:
    """`step(state, inputs at t)` gives the state after it and an output: over axis 1 of all inputs, as one op.

    A graph of any length holds it as it is, where a loop in Python would be written out for one length.
    """
    from torch._higher_order_ops.scan import scan  # loads the compiler

    def apart(carried: Sequence[Tensor], inputs: Sequence[Tensor]) -> tuple[list[Tensor], Tensor]:
        after, y = step([part.to(old.dtype) for part, old in zip(carried, state)], inputs)
        # The op wants each part of the state as it came in, and every result in memory of its own.
        alike = [new.to(old.dtype).clone(memory_format=torch.contiguous_format) for new, old in zip(after, carried)]
        return alike, y.clone()

    # Its gradients take no whole numbers along, so that counts travel as floats, which hold them exactly.
    begin = [part.contiguous() if part.is_floating_point() else part.double() for part in state]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch warns itself: of deprecated parts, and of gradients it looks for
        after, y = scan(apart, begin, list(inputs), dim=1)
    return [new.to(old.dtype) for new, old in zip(after, state)], y
