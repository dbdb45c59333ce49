"""Where in a state: `layers.0.c_BD`, all of `layers.0`, one unit `layers.0.c_BD[D=3]`, one head `*.keys_BSGK[G=1]`.

The letters are those that end a leaf's name, which say what its axes are; an axis can also be told by its number,
`layers.0.change.0[1=2]`, where 0 is the batch. One grammar for every state there is, because a state is a tree.
"""

import re
from fnmatch import fnmatchcase
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from statewise.core import State, leaves, map_state
from statewise.specs import UserError, nearest

S = TypeVar("S", bound=State)

_WRITTEN = re.compile(r"^(?P<path>[^\[\]]*)(?:\[(?P<axis>[A-Z]|\d+)=(?P<number>\d+)\])?$")


class Address(NamedTuple):
    path: str  # a pattern, or the beginning of a path; "" is everything
    axis: str | None = None  # a letter or a number
    number: int = 0

    def __str__(self) -> str:
        return (self.path or "everything") + ("" if self.axis is None else f"[{self.axis}={self.number}]")

    def covers(self, path: str) -> bool:
        return not self.path or path == self.path or path.startswith(f"{self.path}.") or fnmatchcase(path, self.path)

    def part(self, path: str, leaf: Tensor) -> tuple[slice | int, ...]:
        """The index of what is meant in this leaf."""
        if self.axis is None:
            return (slice(None),)
        at = _axis(path, leaf, self.axis)
        if not 1 <= at < leaf.dim():
            raise UserError(f"{path} has no axis {self.axis}", fix=f"its axes are {_axes(path, leaf)}")
        if self.number >= leaf.shape[at]:
            raise UserError(
                f"{path} has {leaf.shape[at]} along {self.axis}, there is no {self.number}", fix="count from 0"
            )
        return (*[slice(None)] * at, self.number)


def parse_address(written: str) -> Address:
    match = _WRITTEN.match(written.strip())
    if match is None:
        raise UserError(
            f"{written!r} is not a place in a state", fix="write layers.0.c_BD, layers.0, or layers.0.c_BD[D=3]"
        )
    path = "" if match["path"] in ("everything", "*") else match["path"]
    return Address(path, match["axis"], int(match["number"] or 0))


def covered(state: State, address: Address) -> list[str]:
    """Paths of the leaves that are meant; none is a mistake."""
    paths = [path for path, _ in leaves(state)]
    found = [path for path in paths if address.covers(path)]
    if not found:
        raise UserError(f"nothing in the state is called {address.path!r}", fix=nearest(address.path, paths))
    return found


def places(state: State) -> list[Address]:
    """Everything that has a name: the whole, every branch with several leaves, every leaf with real numbers in it."""
    paths = [path for path, leaf in leaves(state)]
    branches: dict[str, int] = {}
    for path in paths:
        parts = path.split(".")
        for depth in range(1, len(parts)):
            branch = ".".join(parts[:depth])
            branches[branch] = branches.get(branch, 0) + 1
    # A branch that holds all there is, or the same leaves as the branch above it, would be said twice.
    kept = [
        branch
        for branch, count in branches.items()
        if 1 < count < len(paths) and branches.get(branch.rpartition(".")[0]) != count
    ]
    real = [path for path, leaf in leaves(state) if leaf.is_floating_point() and leaf.numel()]
    return [Address(""), *(Address(path) for path in (*kept, *real) if path)]


def put(state: S, other: S, address: Address) -> S:
    """`state` with what is meant taken from `other`. Nothing is written to: both stay what they are."""
    paths = iter([path for path, _ in leaves(state)])

    def choose(mine: Tensor, theirs: Tensor) -> Tensor:
        path = next(paths)
        if not address.covers(path):
            return mine
        if address.axis is None:
            return theirs.clone()
        part = address.part(path, mine)
        if mine.shape != theirs.shape:
            raise UserError(
                f"{path} has the shape {list(mine.shape)} in one state and {list(theirs.shape)} in the other",
                fix="take all of it, or cut both texts after the same number of tokens",
            )
        changed = mine.clone()
        changed[part] = theirs[part]
        return changed

    covered(state, address)
    return map_state(choose, state, other)


def zeroed(state: S, address: Address) -> S:
    """0 where real numbers are meant. Whole numbers, such as lengths, are no content and stay."""
    nothing = map_state(lambda leaf: torch.zeros_like(leaf) if leaf.is_floating_point() else leaf, state)
    return put(state, nothing, address)


def refuse_half_a_list(initial: State, address: Address) -> None:
    """A list that grows and the number that says how long it is go together, or not at all."""
    growing = {path.rpartition(".")[0] for path, leaf in leaves(initial) if leaf.numel() == 0}
    for branch in growing:
        inside = [path for path, _ in leaves(initial) if path.rpartition(".")[0] == branch]
        meant = [path for path in inside if address.covers(path)]
        if meant and (len(meant) < len(inside) or address.axis is not None):
            raise UserError(
                f"{address} is a part of a list that grows; without the rest it would say nothing",
                fix=f"name all of {branch or 'the state'}, or zero it, which leaves its length alone",
            )


def _letters(path: str, leaf: Tensor) -> str:
    """The axes that a leaf's name tells, or none."""
    letters = path.rpartition(".")[2].rpartition("_")[2]
    return letters if letters.isupper() and len(letters) == leaf.dim() else ""


def _axis(path: str, leaf: Tensor, axis: str) -> int:
    return int(axis) if axis.isdigit() else _letters(path, leaf).find(axis)


def _axes(path: str, leaf: Tensor) -> str:
    letters = _letters(path, leaf)
    named = [f"{letters[at]} or {at}" if letters else str(at) for at in range(1, leaf.dim())]
    return f"{', '.join(named)} (sizes {', '.join(map(str, leaf.shape[1:]))})"
