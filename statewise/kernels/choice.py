"""Which implementation of an op runs, decided in one place, and why.

In order of precedence: an open lens (only the equation can be observed), `force(...)` around the call, `kernel=` of the
module, the environment variable STATEWISE_KERNEL, then what is fastest.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Literal, NamedTuple, cast, get_args

from statewise.core import Switch, Tool, is_observed, tool
from statewise.specs import UserError, nearest

Implementation = Literal["naive", "fused", "batched", "persistent", "stepped", "triton"]
Wish = Literal["auto", "naive", "fused", "batched", "persistent", "stepped", "triton"]
_WISHES = get_args(Wish)

_WHY = {
    "fused": "PyTorch's own op (oneDNN, cuDNN) computes exactly this and is the fastest here",
    "batched": "one product for many time steps, where the equation takes them one by one, is the fastest here",
    "persistent": "one kernel keeps the matrix on the chip for the whole sequence and is the fastest here",
    "stepped": "one product and one kernel a step, many steps a launch, are the fastest here",
    "triton": "one kernel walks through all of time, where PyTorch's ops take many launches, and is the fastest here",
}


class Variable:
    """An environment variable, read at every call.

    `os.environ` raises two exceptions for a name that is not set, which before a short layer takes longer than the rest
    of the choice. So its own dictionary is asked first.
    """

    def __init__(self, name: str) -> None:
        environment: Any = os.environ
        self._name = name
        self._key = environment.encodekey(name)
        self._all = environment._data

    def read(self) -> str:
        """Its current value; empty if it is not set."""
        return os.environ.get(self._name, "") if self._key in self._all else ""


KERNEL = Variable("STATEWISE_KERNEL")
UNPROVEN = Variable("STATEWISE_UNPROVEN")
CAPABILITY = Variable("STATEWISE_CAPABILITY")

# What `traced` may be. PyTorch's attention, which `torch.func` has no rules for:
ATTENTION_OP: Mapping[Tool, Implementation] = {
    "torch.compile": "fused",
    "torch.jit.trace": "fused",
    "torch.export": "fused",
}
# One of PyTorch's recurrences, which `torch.export` would write out for one length besides:
RECURRENT_OP: Mapping[Tool, Implementation] = {"torch.compile": "fused", "torch.jit.trace": "fused"}
# Plain ops in a loop over chunks, which `torch.export` would write out for one length:
PLAIN_CHUNKS: Mapping[Tool, Implementation] = {
    "torch.compile": "batched",
    "torch.jit.trace": "batched",
    "torch.func": "batched",
}


class Choice(NamedTuple):
    implementation: Implementation
    reason: str


def takes_unproven() -> bool:
    """Whether implementations that have not passed all checks on a GPU are chosen by default, not only on request."""
    return UNPROVEN.read() == "1"


_forced: Switch[Wish] = Switch("forced_kernel", "auto")


@contextmanager
def force(wish: Wish) -> Iterator[None]:
    """Inside this block every op runs this implementation, or raises an error that says why it cannot."""
    with _forced.set(wish):
        yield


_recorded: Switch[dict[str, Choice] | None] = Switch("recorded_choices", None)


@contextmanager
def record() -> Iterator[dict[str, Choice]]:
    """The choices made inside this block: the last one of each op, by the op's name."""
    choices: dict[str, Choice] = {}
    with _recorded.set(choices):
        yield choices


def _wished(wish: Wish) -> tuple[Wish, str]:
    """The wish that counts, and where it comes from."""
    forced = _forced.get()
    if forced != "auto":
        return forced, "force(...)"
    if wish != "auto":
        return wish, "kernel="
    return cast(Wish, KERNEL.read() or "auto"), "STATEWISE_KERNEL"


def is_asked(wish: Wish = "auto") -> bool:
    """Whether a lens or a request decides, not what is fastest."""
    return is_observed() or wish != "auto" or _forced.get() != "auto" or KERNEL.read() not in ("", "auto")


def choose(
    op: str,
    *,
    obstacles: Sequence[str],
    wish: Wish = "auto",
    fast: Sequence[Implementation] = ("fused",),
    absent: Mapping[Implementation, str] | None = None,
    traced: Mapping[Tool, Implementation] | None = None,
) -> Choice:
    """The first of `fast`, or the naive one if there are `obstacles`: options that only the naive one has.

    `absent` says why other fast implementations cannot take this call; `traced` names the one that each of PyTorch's
    tools can follow, where it is not the naive one.
    """
    reader = tool()
    if reader is not None and not is_observed():
        chosen = _for_tool(reader, obstacles, wish, traced or {})
    else:
        chosen = _decide(op, obstacles=obstacles, wish=wish, fast=fast, absent=absent or {})
    note(op, chosen)
    return chosen


def note(op: str, chosen: Choice) -> None:
    """Tell it to an open `record()`."""
    recorded = _recorded.get()
    if recorded is not None:
        recorded[op] = chosen


def outside() -> tuple[object, ...]:
    """What a choice depends on beyond the call and its device: a lens, `force`, environment variables."""
    return is_observed(), _forced.get(), KERNEL.read(), takes_unproven()


@cache
def _first(fastest: Implementation, absent: tuple[tuple[Implementation, str], ...]) -> Choice:
    return Choice(fastest, _WHY[fastest] + "".join([f" (not {name}: {why})" for name, why in absent]))


def _for_tool(reader: Tool, obstacles: Sequence[str], wish: Wish, traced: Mapping[Tool, Implementation]) -> Choice:
    """A request for another fast implementation is ignored, as in the drop-in modules of `statewise.nn`."""
    plain = not obstacles and _wished(wish)[0] != "naive"
    return Choice(traced.get(reader, "naive") if plain else "naive", f"{reader} follows plain ops alone")


def _decide(
    op: str,
    *,
    obstacles: Sequence[str],
    wish: Wish,
    fast: Sequence[Implementation],
    absent: Mapping[Implementation, str],
) -> Choice:
    if is_observed():
        return Choice("naive", "a lens is open, and only the equation can be looked into")
    forced, source = _wished(wish)
    if forced not in _WISHES:
        raise UserError(f"{source} asks for the kernel {forced!r}", fix=nearest(str(forced), _WISHES))
    if forced == "naive":
        return Choice("naive", f"asked for by {source}")
    missing = " and no ".join(obstacles)
    if forced == "auto":
        if obstacles:
            return Choice("naive", f"the fast {op} has no {missing}")
        return _first(fast[0], tuple(absent.items()))
    if forced in absent:
        raise UserError(
            f"{source} asks for the {forced} {op}, but {absent[forced]}", fix=f"valid: auto, naive, {', '.join(fast)}"
        )
    if forced not in fast:
        raise UserError(
            f"{source} asks for the {forced} {op}, but there is none on this device",
            fix=f"valid: auto, naive, {', '.join(fast)}",
        )
    if obstacles:
        raise UserError(
            f"{source} asks for the {forced} {op}, but it has no {missing}",
            fix="leave the option out, or let the choice be 'auto'",
        )
    return Choice(forced, f"asked for by {source}")
