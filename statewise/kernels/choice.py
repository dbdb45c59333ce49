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

Implementation = Literal["naive", "fused"]
Wish = Literal["auto", "naive", "fused"]


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


def choose(op: str, *, obstacles: Sequence[str], wish: Wish = "auto") -> Choice:
    """`fused` unless something stands in its way; `obstacles` names what only the naive form can do."""
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
    if obstacles and forced == "fused":
        raise UserError(
            f"{source} asks for the fused {op}, but it has no {' and no '.join(obstacles)}",
            fix="leave the option out, or let the choice be 'auto'",
        )
    if obstacles:
        return Choice("naive", f"PyTorch's fused {op} has no {' and no '.join(obstacles)}")
    if forced == "fused":
        return Choice("fused", f"asked for by {source}")
    return Choice("fused", "PyTorch's own op (oneDNN, cuDNN) computes exactly this and is the fastest here")
