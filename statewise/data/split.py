"""Training and held-out parts: of examples by index, of series along time."""

from collections.abc import Callable, Hashable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from statewise.data.batch import draws
from statewise.data.example_columns import Texts
from statewise.data.series import Series
from statewise.specs import UserError, setting

Index = NDArray[np.int64]

_SPLIT_STREAM = 2**64 - 2  # a separate random stream; no epoch's number is as large


class HeldOut(NamedTuple):
    """Indices, in the order of the file."""

    train_N: Index
    held_M: Index


def hold_out(
    count: int,
    *,
    share: float,
    seed: int = 0,
    groups: Sequence[Hashable] | None = None,
    strata: Sequence[Hashable] | None = None,
) -> HeldOut:
    """Hold out about `share` of `count` examples, at least one, and leave at least one for training.

    Examples of one group stay together: grouped by source sentence, no held-out source is in the training part. With
    `strata` the share is the same for every label.
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
    rank_U = draws(seed, _SPLIT_STREAM, block=0, count=units)
    if strata is None:
        held_U = np.zeros(units, dtype=bool)
        # Enough units to make up the share in examples: groups may be of very unequal size.
        order = np.argsort(rank_U, kind="stable")
        so_far = np.cumsum(np.bincount(unit_N, minlength=units)[order])
        wanted = int(np.searchsorted(so_far, round(share * count), side="left")) + 1
        held_U[order[: min(max(1, wanted), units - 1)]] = True
        held_N = held_U[unit_N]
    else:
        held_N = _stratified(_numbered(strata), rank_U, share)
    return HeldOut(np.flatnonzero(~held_N), np.flatnonzero(held_N))


def _stratified(stratum_N: Index, rank_N: NDArray[np.uint64], share: float) -> NDArray[np.bool_]:
    """The share of each stratum, rounded; a stratum of one example stays in the training part."""
    size_S = np.bincount(stratum_N)
    order_N = np.lexsort((rank_N, stratum_N))  # stratum by stratum, each by rank
    own_N = stratum_N[order_N]
    place_N = np.arange(len(order_N)) - (np.cumsum(size_S) - size_S)[own_N]
    held_N = np.zeros(len(stratum_N), dtype=bool)
    held_N[order_N[place_N < np.minimum(np.rint(share * size_S), size_S - 1)[own_N]]] = True
    if not held_N.any():
        # Every label is rare: hold out the first example of as many labels as make up the share.
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
    if isinstance(keys, Texts):
        return keys.numbered()
    seen: dict[Hashable, int] = {}
    return np.fromiter((seen.setdefault(key, len(seen)) for key in keys), np.int64, len(keys))


class Span(NamedTuple):
    """Rows `begin` to `end` of a series are forecast; the context may start at `reach`."""

    series: Series
    begin: int
    end: int
    reach: int


class SeriesParts(NamedTuple):
    train: tuple[Span, ...]
    validation: tuple[Span, ...]
    test: tuple[Span, ...]
    unused: int = 0  # rows after the last part, in all series together

    def mapped(self, change: Callable[[Series], Series]) -> "SeriesParts":
        """The same parts of transformed series: `parts.mapped(scaling.apply)`. Each series is transformed once."""
        known: dict[int, Series] = {}

        def changed(span: Span) -> Span:
            if id(span.series) not in known:
                known[id(span.series)] = change(span.series)
                assert len(known[id(span.series)]) == len(span.series)
            return span._replace(series=known[id(span.series)])

        train, validation, test = (tuple(map(changed, part)) for part in self[:3])
        return SeriesParts(train, validation, test, self.unused)


_PARTS = ("train", "validation", "test")


def whole_span(series: Series) -> Span:
    return Span(series, 0, len(series), 0)


def split_rows(series: Sequence[Series], split: str) -> SeriesParts:
    """Every series is cut along time: `8640/2880/2880` rows, or `0.6/0.2/0.2` of them.

    A context of the validation or test part may reach back into the part before: that is the past, and known.
    """
    spans: dict[str, list[Span]] = {name: [] for name in _PARTS}
    unused = 0
    for item in series:
        sizes = _sizes(split, total=len(item), what=f"series {item.id!r} has {len(item)} rows")
        begin = 0
        for name, size in zip(_PARTS, sizes):
            if size:
                spans[name].append(Span(item, begin, begin + size, 0))
            begin += size
        unused += len(item) - begin
    train, validation, test = (tuple(spans[name]) for name in _PARTS)
    return SeriesParts(train, validation, test, unused)


def split_last(series: Sequence[Series], split: str) -> SeriesParts:
    """Hold out the last rows of each series: `48/24` for validation and then test, `48` for validation alone."""
    words = [word.strip() for word in split.split("/")]
    if len(words) > 2 or not all(word.isascii() and word.isdigit() and int(word) for word in words):
        raise UserError(
            f"split 'last:{split}' is not valid", fix="give one or two counts of rows: last:48 or last:48/48"
        )
    sizes = [int(word) for word in words]
    spans: list[list[Span]] = [[], [], []]
    for item in series:
        borders = np.cumsum([len(item) - sum(sizes), *sizes]).tolist()
        if borders[0] < 1:
            raise UserError(
                f"series {item.id!r} has {len(item)} rows; without the last {sum(sizes)} nothing is left to learn from",
                fix="hold out less, or leave the series out",
            )
        for part, (begin, end) in zip(spans, pairwise([0, *borders])):
            part.append(Span(item, begin, end, 0))
    train, validation, test = map(tuple, spans)
    return SeriesParts(train, validation, test)


def split_whole(series: Sequence[Series], split: str, *, seed: int = 0) -> SeriesParts:
    """Whole series, drawn by the seed: `200/20/20` of them, or `0.8/0.1/0.1`."""
    sizes = _sizes(split, total=len(series), what=f"there are {len(series)} series")
    draws = np.random.Philox(key=np.array([seed, 0], dtype=np.uint64)).random_raw(len(series))
    shuffled = [series[n] for n in np.argsort(draws, kind="stable")]
    borders = np.cumsum([0, *sizes])
    train, validation, test = (tuple(map(whole_span, shuffled[a:b])) for a, b in pairwise(borders))
    return SeriesParts(train, validation, test, unused=sum(map(len, shuffled[borders[-1] :])))


def split_as_filed(series: Sequence[Series]) -> SeriesParts:
    """By the part that the file gives each series."""
    if stray := [item for item in series if not item.part]:
        raise UserError(
            f"series {stray[0].id!r} of {stray[0].where!r} is in no part of the split",
            fix=f"say how to split: {setting('data.split', '0.7/0.1/0.2')}",
        )
    train, validation, test = (tuple(whole_span(item) for item in series if item.part == name) for name in _PARTS)
    return SeriesParts(train, validation, test)


def split_by_files(
    train: Sequence[Series], validation: Sequence[Series] = (), test: Sequence[Series] = ()
) -> SeriesParts:
    return SeriesParts(tuple(map(whole_span, train)), tuple(map(whole_span, validation)), tuple(map(whole_span, test)))


def _sizes(split: str, *, total: int, what: str) -> list[int]:
    words = [word.strip() for word in split.split("/")]
    wrong = UserError(
        f"split {split!r} is not valid",
        fix="give two or three counts, 8640/2880/2880, or shares of at most 1 together, 0.6/0.2/0.2",
    )
    if not 2 <= len(words) <= 3:
        raise wrong
    if all(word.isascii() and word.isdigit() for word in words) and any(int(word) > 1 for word in words):
        sizes = [int(word) for word in words]
        if sum(sizes) > total:
            raise UserError(
                f"split {split!r} asks for {sum(sizes)}, but {what}",
                fix=f"ask for less, or for shares: {setting('data.split', '0.7/0.1/0.2')}",
            )
    else:
        try:
            shares = [float(word) for word in words]
        except ValueError:
            raise wrong from None
        if not all(0 <= share <= 1 for share in shares) or sum(shares) > 1 + 1e-9:
            raise wrong
        borders = [round(share * total) for share in np.cumsum([0.0, *shares])]
        sizes = [b - a for a, b in pairwise(borders)]
    if sizes[0] < 1:
        raise UserError(f"split {split!r} leaves nothing to learn from: {what}", fix="give the first part more")
    return sizes + [0] * (3 - len(sizes))
