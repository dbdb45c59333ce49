"""Every machine refuses a state that is not its own, before any kernel sees it.

A kernel trusts its arguments: given a state of fewer rows, it reads and writes past the end of memory. So the contract
compares each state with the machine's own `init_state`: structure, rows, shape, kind of number, device. An axis that is
empty at the start (a list that grows) may have any length, the same for all lists side by side.

The machine that a caller calls makes the comparison; its parts trust it. Compiled and captured code makes none.
"""

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from statewise.core.state import State
from statewise.specs import UserError

Method = TypeVar("Method", bound=Callable[..., Any])

_FIX = "pass the state that this machine returned for these rows, or None to begin anew"


class _Inside(threading.local):
    a_machine = False  # whether this thread is in a call of a machine, which has checked the whole state


_inside = _Inside()


@contextmanager
def unchecked() -> Iterator[None]:
    """Inside, this thread's machines check no state: for measuring what checking costs, and for nothing else."""
    _inside.a_machine = True
    try:
        yield
    finally:
        _inside.a_machine = False


def guard_sequence(method: Method) -> Method:
    """For `forward` and `absorb`, which take a state or none, and lengths."""

    @functools.wraps(method)
    def guarded(self: Any, x: Tensor, state: Any = None, lengths_B: Tensor | None = None) -> Any:
        if _inside.a_machine or torch.compiler.is_compiling():
            return method(self, x, state, lengths_B)
        if state is not None:
            check_state(self, x, state)
        _inside.a_machine = True
        try:
            return method(self, x, state, lengths_B)
        finally:
            _inside.a_machine = False

    return guarded  # type: ignore[return-value]  # the same signature


def guard_step(method: Method) -> Method:
    """For `step` and `step_`, which always take a state."""

    @functools.wraps(method)
    def guarded(self: Any, x: Tensor, state: Any) -> Any:
        if _inside.a_machine or torch.compiler.is_compiling():
            return method(self, x, state)
        check_state(self, x, state)
        _inside.a_machine = True
        try:
            return method(self, x, state)
        finally:
            _inside.a_machine = False

    return guarded  # type: ignore[return-value]  # the same signature


def check_state(machine: Any, x: Tensor, state: State) -> None:
    """Refuse a `state` from which `machine` cannot read the rows of `x`."""
    check = machine._state_check
    if check is None:
        with torch.no_grad(), _disable_current_modes():  # a counter of FLOPs, say, must not count this
            like = machine.init_state(1)
        check = machine._state_check = StateCheck(like, _compile(like))
    device = machine._buffers["like"].device  # as an attribute, the buffer would cost as much as all the rest of this
    rows = x.shape[0] if x.dim() else 0
    try:
        if check.is_exact(state, rows, device):
            return
    except (AttributeError, TypeError, IndexError):  # no tensor where there should be one
        pass
    complaint = _complaint(check.like, state, rows, device, "")
    if complaint:
        raise UserError(complaint, fix=_FIX)


IsExact = Callable[[Any, int, torch.device], bool]


class StateCheck(NamedTuple):
    """`is_exact` answers fast whether a state is built as `like`, a state of one row, in all of its details."""

    like: State
    is_exact: IsExact


def _compile(like: State) -> IsExact:
    """This runs at every step, so it does no more than it must; what it does not know, `_complaint` judges."""
    if isinstance(like, Tensor):
        leaf = _compile_leaves((like,))
        return lambda state, rows, device: leaf((state,), rows, device)
    kind, length = type(like), len(like)
    if not length:
        return lambda state, rows, device: type(state) is kind and not state
    leaves = [part for part in like if isinstance(part, Tensor)]
    if len(leaves) == length:
        fits = _compile_leaves(tuple(leaves))
        return lambda state, rows, device: type(state) is kind and fits(state, rows, device)
    parts = [_compile(part) for part in like]

    def is_exact(state: Any, rows: int, device: torch.device) -> bool:
        if type(state) is not kind or len(state) != length:
            return False
        for fits, part in zip(parts, state):  # noqa: SIM110  # a generator would cost more than what it asks
            if not fits(part, rows, device):
                return False
        return True

    return is_exact


def _compile_leaves(leaves: tuple[Tensor, ...]) -> IsExact:
    dtypes = [leaf.dtype for leaf in leaves]
    length = len(leaves)
    if any(0 in leaf.shape[1:] for leaf in leaves):
        inner = [leaf.shape[2:] for leaf in leaves]  # behind the rows and what may grow
        lists = [leaf.dim() > 1 and leaf.shape[1] == 0 for leaf in leaves]
        first = [leaf.shape[1] if leaf.dim() > 1 else None for leaf in leaves]

        def lists_fit(state: Any, rows: int, device: torch.device) -> bool:
            time = None
            for part, rest, dtype, grows, second in zip(state, inner, dtypes, lists, first):
                shape = part.shape
                if shape[0] != rows or shape[2:] != rest or part.dtype is not dtype or part.device != device:
                    return False
                if grows:
                    if time is not None and shape[1] != time:
                        return False
                    time = shape[1]
                elif (len(shape) > 1) != (second is not None) or (second is not None and shape[1] != second):
                    return False
            return len(state) == length

        return lists_fit
    sizes = dict[int, list[torch.Size]]()  # by the number of rows

    def fits(state: Any, rows: int, device: torch.device) -> bool:
        wanted = sizes.get(rows)
        if wanted is None:
            wanted = sizes[rows] = [torch.Size((rows, *leaf.shape[1:])) for leaf in leaves]
        for part, size, dtype in zip(state, wanted, dtypes):
            if part.shape != size or part.dtype is not dtype or part.device != device:
                return False
        return len(state) == length

    return fits


def _agrees(inner: torch.Size, shape: torch.Size, rows: int) -> bool:
    if len(shape) != len(inner) + 1 or shape[0] != rows:
        return False
    return all(size == expected or expected == 0 for size, expected in zip(shape[1:], inner))


def _complaint(like: State, state: Any, rows: int, device: torch.device, path: str) -> str:
    name = f"state.{path}" if path else "state"
    if isinstance(like, Tensor):
        return _leaf_complaint(like, state, rows, device, name)
    if type(state) is not type(like):
        return f"{name} is {_kind(state)}, expected {_kind(like)}"
    if len(state) != len(like):
        return f"{name} has {len(state)} parts, expected {len(like)}"
    names = getattr(like, "_fields", range(len(like)))
    lists: dict[Any, int] = {}
    part: Any
    for key, expected, part in zip(names, like, state):
        complaint = _complaint(expected, part, rows, device, f"{path}.{key}" if path else str(key))
        if complaint:
            return complaint
        if isinstance(expected, Tensor) and expected.dim() > 2 and expected.shape[1] == 0:
            lists[key] = part.shape[1]
    if len(set(lists.values())) > 1:
        lengths = ", ".join(f"{key}: {length}" for key, length in lists.items())
        return f"{name} has lists of different lengths ({lengths}), expected one length for all"
    return ""


def _leaf_complaint(like: Tensor, leaf: Any, rows: int, device: torch.device, name: str) -> str:
    if not isinstance(leaf, Tensor):
        return f"{name} is {_kind(leaf)}, expected a tensor"
    inner = like.shape[1:]
    if not _agrees(inner, leaf.shape, rows):
        expected = ", ".join(str(size) if size else "any" for size in (rows, *inner))
        other_rows = leaf.dim() > 0 and _agrees(inner, leaf.shape, leaf.shape[0])
        why = f": the input has {rows} rows, the state {leaf.shape[0]}" if other_rows else ""
        return f"{name} has shape {list(leaf.shape)}, expected [{expected}]{why}"
    if leaf.dtype is not like.dtype and not (leaf.is_floating_point() and like.is_floating_point()):
        wanted = "a floating-point type" if like.is_floating_point() else str(like.dtype)
        return f"{name} has type {leaf.dtype}, expected {wanted}"
    return "" if leaf.device == device else f"{name} is on {leaf.device}, expected {device}"


def _kind(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of shape {list(value.shape)}"
    return f"a tuple of {len(value)} parts" if type(value) is tuple else f"a {type(value).__name__}"
