"""What is learned from and what is held out, as indices: by chance or from the end, by group, by label."""

from collections.abc import Hashable, Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from statewise.data.batch import draws
from statewise.specs import UserError

Index = NDArray[np.int64]
How = Literal["random", "last"]

_SPLIT = 2**64 - 2  # a stream of draws of its own, far from any epoch's number


class HeldOut(NamedTuple):
    """Both in the order of the file."""

    train_N: Index
    held_M: Index


def hold_out(
    count: int,
    *,
    share: float,
    how: How = "random",
    seed: int = 0,
    groups: Sequence[Hashable] | None = None,
    strata: Sequence[Hashable] | None = None,
) -> HeldOut:
    """Hold out about `share` of `count` examples, at least one, and leave at least one to learn from.

    Examples of one group stay together: by source sentence, a pair whose source was learned from is never
    asked for. With `strata` the share is taken of every label alike. `how="last"` takes the end of the
    file: with groups the last of them to begin, with strata the end of each.
    """
    assert 0 < share < 1
    assert groups is None or len(groups) == count
    assert strata is None or len(strata) == count
    if groups is not None and strata is not None:
        raise UserError("examples cannot be held out by group and by label at once", fix="choose one of the two")
    unit_N = _numbered(groups) if groups is not None else np.arange(count)
    units = int(unit_N.max(initial=-1)) + 1
    if units < 2:
        what = "examples" if groups is None else "different groups"
        raise UserError(
            f"{units} {what} cannot be split into what is learned and what is held out",
            fix="give more examples, or name files to hold out",
        )
    rank_U = draws(seed, _SPLIT, block=0, count=units) if how == "random" else np.arange(units)[::-1]
    if strata is None:
        held_U = np.zeros(units, dtype=bool)
        # As many units as make up the share in examples: groups may be of very unequal size.
        order = np.argsort(rank_U, kind="stable")
        so_far = np.cumsum(np.bincount(unit_N, minlength=units)[order])
        wanted = int(np.searchsorted(so_far, round(share * count), side="left")) + 1
        held_U[order[: min(max(1, wanted), units - 1)]] = True
        held_N = held_U[unit_N]
    else:
        held_N = _stratified(_numbered(strata), rank_U, share)
    return HeldOut(np.flatnonzero(~held_N), np.flatnonzero(held_N))


def _stratified(stratum_N: Index, rank_N: NDArray[np.unsignedinteger] | Index, share: float) -> NDArray[np.bool_]:
    """The share of each stratum, rounded; one that is alone in its stratum is learned from."""
    size_S = np.bincount(stratum_N)
    order_N = np.lexsort((rank_N, stratum_N))  # stratum by stratum, each by rank
    own_N = stratum_N[order_N]
    place_N = np.arange(len(order_N)) - (np.cumsum(size_S) - size_S)[own_N]
    held_N = np.zeros(len(stratum_N), dtype=bool)
    held_N[order_N[place_N < np.minimum(np.rint(share * size_S), size_S - 1)[own_N]]] = True
    if not held_N.any():
        # Every label is rare: of some, the first is held out, as many as make up the share.
        firsts = order_N[(place_N == 0) & (size_S[own_N] > 1)]
        if not len(firsts):
            raise UserError(
                "no label has two examples, one to learn from and one to hold out",
                fix="give more examples, or name files to hold out",
            )
        firsts = firsts[np.argsort(rank_N[firsts], kind="stable")]
        held_N[firsts[: max(1, round(share * len(stratum_N)))]] = True
    return held_N


def _numbered(keys: Sequence[Hashable]) -> Index:
    """Each key's number in order of first appearance."""
    seen: dict[Hashable, int] = {}
    return np.array([seen.setdefault(key, len(seen)) for key in keys], dtype=np.int64)
