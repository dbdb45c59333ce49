"""Which implementation of an op runs, decided in one place, and why.

In order of weight: an open lens (only the equation can be looked into), `force(...)` around the
call, the `kernel=` of the module, the environment variable STATEWISE_KERNEL, then what is fastest.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal, NamedTuple, cast, get_args

from statewise.core import is_observed
from statewise.specs import UserError, nearest

Implementation = Literal["naive", "fused", "batched"]
Wish = Literal["auto", "naive", "fused", "batched"]

_WHY = {
    "fused": "PyTorch's own op (oneDNN, cuDNN) computes exactly this and is the fastest here",
    "batched": "one product for many moments, where the equation takes them one by one, is the fastest here",
}


class Choice(NamedTuple):
    implementation: Implementation
    reason: str


_forced: ContextVar[Wish] = ContextVar("forced_kernel", default="auto")


@contextmanager
def force(wish: Wish) -> Iterator[None]:
    """Inside this block every op runs as wished, or says why it cannot."""
    token = _forced.set(wish)
    try:
        yield
    finally:
        _forced.reset(token)


def choose(
    op: str, *, obstacles: Sequence[str], wish: Wish = "auto", fast: Sequence[Implementation] = ("fused",)
) -> Choice:
    """The first of `fast` unless something stands in its way; `obstacles` names what only the naive form can do."""
    if is_observed():
        return Choice("naive", "a lens is open, and only the equation can be looked into")
    forced = _forced.get()
    source = "force(...)"
    if forced == "auto" and wish != "auto":
        forced, source = wish, "kernel="
    if forced == "auto" and "STATEWISE_KERNEL" in os.environ:
        forced, source = cast(Wish, os.environ["STATEWISE_KERNEL"]), "STATEWISE_KERNEL"
    if forced not in get_args(Wish):
        raise UserError(f"{source} asks for the kernel {forced!r}", fix=nearest(str(forced), get_args(Wish)))
    if forced == "naive":
        return Choice("naive", f"asked for by {source}")
    missing = " and no ".join(obstacles)
    if forced == "auto":
        return Choice("naive", f"the fast {op} has no {missing}") if obstacles else Choice(fast[0], _WHY[fast[0]])
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
