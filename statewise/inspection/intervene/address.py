"""Addresses in a state, and interventions on them.

`layers.0.c_BD` is a leaf, `layers.0` all of a layer, `layers.0.c_BD[D=3]` one unit, `*.keys_BSGK[G=1]` one head. The
letter is that of an axis, at the end of a leaf's name. An axis can also be given by its number, where 0 is the batch:
`layers.0.change.0[1=2]`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Literal, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from statewise.core import Machine, State, leaves, map_state
from statewise.specs import UserError, nearest

S = TypeVar("S", bound=State)

Act = Literal["zero", "forget", "swap", "freeze", "silence"]

ACTS: tuple[Act, ...] = ("zero", "forget", "swap", "freeze")  # on a state; observed values are silenced
ACT_NAMES: Mapping[Act, str] = {
    "zero": "set to 0",
    "forget": "as at the beginning",
    "swap": "from elsewhere",
    "freeze": "held still",
    "silence": "silent",
}
MOST_PLACES = 24  # rows of a figure

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
    meant = [path for path in paths if address.covers(path)]
    if not meant:
        raise UserError(f"nothing in the state is called {address.path!r}", fix=nearest(address.path, paths))
    return meant


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


# -------------------------------------------------------------------- what is done there


class Intervention(NamedTuple):
    address: Address
    act: Act

    def __str__(self) -> str:
        return f"{self.address} {ACT_NAMES[self.act]}"


def changed(model: Machine[S], state: S, address: Address, act: Act, *, other: S | None = None) -> S:
    """`state` after the act. `freeze` and `silence` apply while reading on: the state does not change yet."""
    if act != "zero" and act != "silence":
        refuse_half_a_list(model.init_state(1), address)
    match act:
        case "zero":
            return zeroed(state, address)
        case "forget":
            return put(state, model.init_state(len(next(leaves(state))[1])), address)
        case "swap":
            assert other is not None, "a swap needs another state"
            return put(state, other, address)
        case "freeze" | "silence":
            return state


def silence(address: Address) -> Callable[[str, Tensor], Tensor]:
    """An edit for `core.lens`: an observed value, or one entry along an axis of it, is 0."""

    def edit(name: str, value: Tensor) -> Tensor:
        if address.axis is None:
            return torch.zeros_like(value)
        copy = value.clone()
        copy[address.part(name, value)] = 0
        return copy

    return edit


def possible(initial: State, addresses: Sequence[Address]) -> list[Intervention]:
    """Half a list can only be zeroed; for a leaf that begins with 0, `forget` is the same as `zero`."""
    interventions = []
    for address in addresses:
        try:
            refuse_half_a_list(initial, address)
            acts: tuple[Act, ...] = ACTS
        except UserError:
            acts = ("zero",)
        meant = [leaf for path, leaf in leaves(initial) if address.covers(path)]
        if address.path and all(leaf.is_floating_point() and leaf.numel() and not leaf.any() for leaf in meant):
            acts = tuple(act for act in acts if act != "forget")
        interventions += [Intervention(address, act) for act in acts]
    return interventions


def on_state(initial: State, state: State, wanted: str | None, missing: list[str]) -> list[Intervention] | None:
    """Everything that can be done to every place of a state, or to the `wanted` one; None: there is no such place."""
    if wanted is None:
        addresses = places(state)
        if len(addresses) > MOST_PLACES:
            left = len(addresses) - MOST_PLACES
            missing.append(f"{left} more places of the state are left out; name one of them with the setting address")
        return possible(initial, addresses[:MOST_PLACES])
    address, named = parse_address(wanted), dict(leaves(state))
    meant = [path for path in named if address.covers(path)]
    for path in meant:
        address.part(path, named[path])
    if not meant:
        return None
    whole = Address("")
    return possible(initial, [whole] if address == whole else [whole, address])


def units_of(state: State, path: str, *, most: int) -> tuple[list[Address], int]:
    """The units (or heads) of a leaf, at most so many of them, evenly spaced; and how many there are."""
    leaf = dict(leaves(state))[path]
    letters = _letters(path, leaf)
    axis = next((letter for letter in letters[1:] if letter in "HG"), letters[-1:] or str(leaf.dim() - 1))
    size = leaf.shape[_axis(path, leaf, axis)]
    numbers = np.unique(np.linspace(0, size - 1, min(size, most)).round().astype(int))
    return [Address(path, axis, int(number)) for number in numbers], size
