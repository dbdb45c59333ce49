"""A bound on the length of examples: what is beyond it is cut, left out or refused, never silently."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from statewise.data.lines import Where
from statewise.specs import UserError

Beyond = Literal["cut", "leave-out", "refuse"]


class Bounded(NamedTuple):
    """`kept` are the indices of the examples that remain; `beyond` is how many were too long."""

    kept: list[int]
    beyond: int


def bound(lengths: Sequence[int], *, longest: int | None, beyond: Beyond, where: Sequence[Where]) -> Bounded:
    """Which examples stay, given the length of each in tokens. Who cuts takes `[:longest]` of those."""
    too_long = [i for i, length in enumerate(lengths) if longest is not None and length > longest]
    if too_long and beyond == "refuse":
        first = too_long[0]
        raise UserError(
            f"{where[first]}: {lengths[first]} tokens, more than the longest allowed, {longest} "
            f"({len(too_long)} of {len(lengths)} examples are)",
            fix=f"set longest = {max(lengths)}, or beyond = cut or leave-out",
        )
    gone = set(too_long) if beyond == "leave-out" else set()
    return Bounded([i for i in range(len(lengths)) if i not in gone], len(too_long))
