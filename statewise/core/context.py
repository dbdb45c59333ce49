"""What surrounds a call: a lens that observes it, a PyTorch tool that traces it, a value set for a block.

The tap: `observe("lstm.forget_gate", f)` is the identity unless a lens is open. No forward has an `output_attentions`
flag: to look inside, open a lens. The op is then computed by its naive implementation, so a lens sees the equation.

`torch.compile`, `torch.export`, `torch.jit.trace` and `torch.func` follow tensors through plain ops. They need to be
recognised, switches that they can read, and a loop that they can keep. `docs/tracing.md` says what each of them does
with each machine.
"""

import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from fnmatch import fnmatchcase
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


Step = Callable[[Sequence[Tensor], Sequence[Tensor]], tuple[Sequence[Tensor], Tensor]]


def is_symbolic(size: int) -> bool:
    """Whether a size stands for any number: a loop over it cannot be written out."""
    return isinstance(size, torch.SymInt)


def kept_loop(step: Step, state: Sequence[Tensor], inputs: Sequence[Tensor]) -> tuple[list[Tensor], Tensor]:
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


# -------------------------------------------------------------------- the lens

Edit = Callable[[str, Tensor], Tensor]


class Lens:
    """Collects what was observed while it was open, by name, in the order it happened.

    With `keep=False` it collects nothing: `edit` sees everything pass, and keeps what it wants.
    """

    def __init__(self, patterns: tuple[str, ...], *, edit: Edit | None = None, keep: bool = True) -> None:
        self.patterns = patterns
        self.edit = edit
        self.keep = keep
        self.seen: dict[str, list[Tensor]] = {}

    @uncompiled
    def see(self, name: str, value: Tensor) -> Tensor:
        if not any(fnmatchcase(name, pattern) for pattern in self.patterns):
            return value
        if self.edit is not None:
            value = self.edit(name, value)
        if self.keep:
            self.seen.setdefault(name, []).append(value)
        return value

    @property
    def names(self) -> list[str]:
        return list(self.seen)

    def __getitem__(self, name: str) -> Tensor:
        """Everything seen under a name, stacked along time: `[B, T, ...]`."""
        if name not in self.seen:
            raise KeyError(f"{name!r} was not observed; seen: {', '.join(self.seen) or 'nothing'}")
        return torch.stack(self.seen[name], dim=1)


_open: Switch[Lens | None] = Switch("lens", None)
_scope: Switch[str] = Switch("scope", "")


def observe(name: str, value: Tensor) -> Tensor:
    """Show `value` to an open lens under a name. Go on with what it returns: a lens may change it.

    Without a lens it returns `value` at once, so it may stand in any layer of yours.

    >>> with sw.lens() as seen:
    ...     gate = sw.observe("mine.gate", torch.ones(2, 3))
    >>> seen.names
    ['mine.gate']
    """
    if not _open.used:
        return value
    opened = _open.get()
    return value if opened is None else opened.see(_scope.get() + name, value)


def is_observed() -> bool:
    return _open.used > 0 and _open.get() is not None


@contextmanager
def lens(*patterns: str, edit: Edit | None = None, keep: bool = True) -> Iterator[Lens]:
    """Record what a model computes inside: every observed value whose name matches a pattern (default: all).

    `edit(name, value)` may return another value, which the model then goes on with. `keep=False` records nothing.
    The values are `[B, T, ...]` by name; `.names` lists them.

    >>> model = sw.build("lstm", vocab=5, width=8)
    >>> with sw.lens("*forget_gate") as seen:
    ...     _ = model(torch.tensor([[0, 1, 2]]))
    >>> seen["layers.0.lstm.forget_gate"].shape
    torch.Size([1, 3, 8])
    """
    opened = Lens(patterns or ("*",), edit=edit, keep=keep)
    with _open.set(opened):
        yield opened


@contextmanager
def scope(name: str) -> Iterator[None]:
    """Prefix observed names, so that the same op in two layers has two names."""
    if not is_observed():
        yield
        return
    with _scope.set(f"{_scope.get()}{name}."):
        yield
