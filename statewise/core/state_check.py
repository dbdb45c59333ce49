"""Every machine refuses a state that is not its own, before any kernel sees it.

A kernel trusts its arguments: given a state of fewer rows, it reads and writes past the end of memory. So the contract
compares each state with the machine's own `init_state`: structure, rows, shape, kind of number, device. An axis that is
empty at the start (a list that grows) may have any length, the same for all lists side by side. Lengths are checked
likewise, and what lies past them is blanked.

The machine that a caller calls makes the comparison; its parts trust it. Compiled and captured code makes none.
"""

import functools
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from threading import get_ident
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from statewise.core.state import State, leaves, past_end
from statewise.specs import UserError

Method = TypeVar("Method", bound=Callable[..., Any])

_is_compiling, _is_traced = torch.compiler.is_compiling, torch.compiler.is_dynamo_compiling  # looked up once
_is_grad_enabled = torch.is_grad_enabled

_HELD_BYTES = 2**24  # of a list that a machine may keep alive after its last step
_NOTHING: list[Any] = [object(), torch.Size()]  # no state is this one
_FIX = "pass the state that this machine returned for these rows, or None to begin anew"

# Whether a thread is in a call of a machine, which has checked the whole state. Entering and leaving costs a fifth of
# what it costs with `threading.local`. A thread's entry stays, since a dict in which one comes and goes is rebuilt at
# every fifth call; the system gives the numbers of ended threads to new ones.
_inside: dict[int, bool] = {}


@contextmanager
def unchecked() -> Iterator[None]:
    """Inside, this thread's machines check no state: for a call that was checked, and for measuring what that costs."""
    thread = get_ident()
    _inside[thread] = True
    try:
        yield
    finally:
        _inside[thread] = False


def guard_sequence(method: Method) -> Method:
    """For `forward` and `absorb`, which take a state or none, and lengths."""

    @functools.wraps(method)
    def guarded(self: Any, x: Tensor, state: Any = None, lengths_B: Tensor | None = None) -> Any:
        if _is_traced():
            return method(self, x if lengths_B is None else blanked(x, lengths_B), state, lengths_B)
        thread = get_ident()
        if _inside.get(thread):
            return method(self, x, state, lengths_B)
        if not isinstance(x, Tensor):
            raise _no_tensor(x)
        if lengths_B is not None:
            x = blanked(x, lengths_B)
        if _is_compiling():
            return method(self, x, state, lengths_B)
        if state is not None and not (self._state_check or _make_check(self)).fits(x, state):
            _refuse(self, x, state)
        _inside[thread] = True
        try:
            return method(self, x, state, lengths_B)
        finally:
            _inside[thread] = False

    return guarded  # type: ignore[return-value]  # the same signature


def guard_step(method: Method) -> Method:
    """For `step` and `step_`, which always take a state. The state that the last step returned needs no check."""

    @functools.wraps(method)
    def guarded(self: Any, x: Tensor, state: Any) -> Any:
        if _is_traced() or _inside.get(thread := get_ident()):
            return method(self, x, state)
        try:
            check, shape = self._state_check, x.shape
        except AttributeError:
            raise _no_tensor(x) from None
        known = check.known if check else _NOTHING  # a state and its input's shape, together: threads cannot mix two
        if state is not known[0] or shape != known[1]:
            if _is_compiling():
                return method(self, x, state)
            check = check or _make_check(self)
            _check_axes(self.step_axes, shape)
            if not check.fits(x, state):
                _refuse(self, x, state)
            check.holds = check.steps_to_hold > 0 and not _is_grad_enabled()
            known = check.known = [_NOTHING[0], shape]
        _inside[thread] = True
        try:
            result = method(self, x, state)
        finally:
            _inside[thread] = False
        if check.holds:
            known[0] = result[1]
            if check.bytes_a_token:
                check.steps_to_hold -= 1
                check.holds = check.steps_to_hold > 0
        else:
            check.known = _NOTHING
        return result

    return guarded  # type: ignore[return-value]  # the same signature


def check_input(x: Tensor, lengths_B: Tensor | None, *, width: int | None = None) -> None:
    """Refuse shapes that would crash or silently broadcast inside a kernel."""
    axes = 2 if width is None else 3
    if x.dim() != axes or x.shape[1] == 0 or x.shape[0] == 0:
        wanted = "[batch, time]" if width is None else f"[batch, time, {width}]"
        raise UserError(f"input has shape {list(x.shape)}, expected a non-empty {wanted}")
    if width is not None and x.shape[2] != width:
        raise UserError(f"input has width {x.shape[2]}, expected {width}")
    if lengths_B is not None:
        check_lengths(x, lengths_B)


def _no_tensor(x: Any) -> UserError:
    return UserError(f"input is {_kind(x)}, expected a tensor", fix="pass torch.tensor(...)")


def _check_axes(axes: int | None, shape: torch.Size) -> None:
    """Refuse a time axis where one time step is read: it would be broadcast against the rows of the state."""
    if axes is not None and len(shape) != axes:
        expected = "[batch]" if axes == 1 else "[batch, width]"
        raise UserError(
            f"input of a step has shape {list(shape)}, expected {expected}",
            fix="pass one time step, x[:, t]; for several call the machine itself",
        )


def blanked(x: Tensor, lengths_B: Tensor) -> Tensor:
    """`x` with 0 past each row's end: whatever padding holds, NaN too, reaches neither values nor gradients."""
    if x.dim() < 2:
        return x  # refused in words of its own
    check_lengths(x, lengths_B)
    return past_end(x, lengths_B)


def check_lengths(x: Tensor, lengths_B: Any) -> None:
    """Refuse lengths that are not one whole number of 0 to T for each row of `x` `[B, T, ...]`.

    What a GPU holds is checked there, since asking means waiting: wrong lengths end the program, as wrong tokens do.
    """
    if not _is_traced() and _inside.get(get_ident()):
        return
    rows, time = x.shape[:2]
    if not isinstance(lengths_B, Tensor):
        raise UserError(f"lengths are {_kind(lengths_B)}, expected a tensor", fix="pass torch.tensor(lengths)")
    if lengths_B.shape != (rows,) or lengths_B.dtype not in _WHOLE:
        got = f"shape {list(lengths_B.shape)} of {lengths_B.dtype}"
        raise UserError(f"lengths must be {rows} whole numbers, one a row; got {got}")
    if lengths_B.device != x.device:
        raise UserError(f"lengths are on {lengths_B.device}, expected {x.device}, where the input is")
    if _is_compiling() or type(lengths_B) is not Tensor or torch._C._are_functorch_transforms_active():
        return  # there are no numbers to look at
    if lengths_B.device.type == "cuda":
        torch._assert_async((lengths_B.clamp(0, time) == lengths_B).all(), f"a length is not in 0 to {time}")
    elif lengths_B.device.type == "cpu":
        wrong = [length for length in lengths_B.tolist() if not 0 <= length <= time]
        if wrong:
            raise UserError(f"lengths hold {wrong[0]}, expected 0 to {time}, the length of the input")


_WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def _make_check(machine: Any) -> "StateCheck":
    with torch.no_grad(), _disable_current_modes():  # a counter of FLOPs, say, must not count this
        machine._state_check = StateCheck(machine.init_state(1))
    check: StateCheck = machine._state_check
    return check


def _refuse(machine: Any, x: Tensor, state: Any) -> None:
    """Say what is wrong with a state that does not fit; another floating-point type than the machine's is not wrong."""
    rows = x.shape[0] if x.dim() else 0
    complaint = _complaint(machine._state_check.like, state, rows, machine.like.device, "")
    if complaint:
        raise UserError(complaint, fix=_FIX)


class StateCheck:
    """Whether a state is built as `like`, a state of one row, in all of its details.

    This runs at every step, so what it compares is gathered by C functions, for all leaves at once.
    """

    def __init__(self, like: State) -> None:
        self.like = like
        self.flatten = _flattener(like)
        shapes = [(tuple(leaf.shape[1:]), leaf.dtype) for _, leaf in leaves(like)]
        self.kinds = list(dict.fromkeys(shapes))  # a model of many equal layers has few
        self.kind_of_leaf = [self.kinds.index(shape) for shape in shapes]
        self.a_list = next((place for place, (inner, _) in enumerate(shapes) if inner[:1] == (0,)), None)
        # The state that the last step returned, and its input's shape: it fits, and is never read. A graph, or a list
        # that has grown large, would keep too much memory: such states are checked each time. Whether there is a graph
        # is asked where a checked state comes in, and not at the steps that follow from it.
        self.known = _NOTHING
        self.holds = False
        self.bytes_a_token = sum(math.prod(inner[1:]) * dtype.itemsize for inner, dtype in shapes if inner[:1] == (0,))
        if any(0 in inner[1:] for inner, _ in shapes):  # it grows in another direction: never held
            self.bytes_a_token = _HELD_BYTES + 1
        self.steps_to_hold = 0 if self.bytes_a_token else 1
        self.expected: tuple[tuple[Any, ...], list[tuple[Any, ...]]] = ((), [])  # for what, the `_facts` of each leaf

    def fits(self, x: Tensor, state: Any) -> bool:
        """False asks for a closer look by `_refuse`, which knows states that fit and are rare."""
        shape, _, device = _facts(x)
        try:
            facts = list(map(_facts, self.flatten(state)))
            rows = shape[0]
            time = 0 if self.a_list is None else facts[self.a_list][0][1]
        except (AttributeError, TypeError, IndexError, ValueError):  # another structure, or no tensor
            return False
        known_for, expected = self.expected
        if (rows, time, device) != known_for:
            kinds = [
                ((rows, time, *inner[1:]) if inner and not inner[0] else (rows, *inner), dtype, device)
                for inner, dtype in self.kinds
            ]
            expected = [kinds[kind] for kind in self.kind_of_leaf]
            self.expected = (rows, time, device), expected
            if self.bytes_a_token and rows:
                self.steps_to_hold = _HELD_BYTES // (rows * self.bytes_a_token) - time
        return facts == expected


_facts: Callable[[Any], tuple[Any, ...]] = operator.attrgetter("shape", "dtype", "device")
_type: Callable[[Any], type] = type
Flatten = Callable[[Any], Sequence[Any]]


def _flattener(like: State) -> Flatten:
    """Of a state that is built as `like`, the leaves in order; of another, a ValueError."""
    if isinstance(like, Tensor):
        return lambda state: (state,)
    kind = type(like)
    if kind is not tuple and all(isinstance(part, Tensor) for part in like):
        return lambda state: state if type(state) is kind else _other()
    match like:
        case (tuple() as layers, ()) if layers and all(_is_flat(layer) for layer in layers):
            kinds = list(map(_type, layers))  # a stack without positions of its own: by far the most calls

            def flatten_stack(state: Any) -> Sequence[Any]:
                if type(state) is not kind or state[1] != ():
                    return _other()
                inner = state[0]
                return list(chain.from_iterable(inner)) if list(map(_type, inner)) == kinds else _other()

            return flatten_stack
    parts = [_flattener(part) for part in like]

    def flatten(state: Any) -> Sequence[Any]:
        if type(state) is not kind:
            return _other()
        return [leaf for part, inner in zip(parts, state, strict=True) for leaf in part(inner)]

    return flatten


def _is_flat(like: State) -> bool:
    return type(like) is not tuple and all(isinstance(part, Tensor) for part in like)


def _other() -> Sequence[Any]:
    raise ValueError


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
