"""The width at which a model has so much of something: parameters, or bytes of state."""

from collections.abc import Callable, Iterator, Mapping
from functools import reduce
from typing import Any, NamedTuple

from statewise.comparison.study import spec_of
from statewise.comparison.study_data import OpenedData
from statewise.specs import AnyRunSpec, EntrySpec, Finer, StudySpec, UserError

_WIDEST = 1 << 16
_NEAR = 24  # widths on either side of the best that are tried where it does not parse or build
_STRETCH = 4  # how far the finer setting may be from what was written

Amount = Callable[[AnyRunSpec], float]


class _Candidate(NamedTuple):
    settings: dict[str, Any]
    spec: AnyRunSpec
    amount: float


def solve_width(
    study: StudySpec, entry: EntrySpec, data: OpenedData, *, amount: Amount, wanted: float
) -> dict[str, Any]:
    """The width that comes nearest; where the grid of valid widths is too coarse, a finer setting beside it."""
    assert entry.width is not None
    paths = (entry.width,) if isinstance(entry.width, str) else entry.width

    def at(width: int, finer: Mapping[str, Any] | None = None) -> _Candidate | UserError:
        settings = {**dict.fromkeys(paths, width), **(finer or {})}
        try:
            spec = spec_of(study, entry, settings)
            return _Candidate(settings, spec, amount(spec))
        except UserError as error:
            return error

    def off(candidate: _Candidate) -> float:
        return abs(candidate.amount - wanted)

    crossing = _crossing(at, wanted, entry)
    for reach in (2, _NEAR):
        around = range(max(1, crossing - reach), crossing + reach + 1)
        near = [found for width in around if isinstance(found := at(width), _Candidate)]
        fitting = list(_that_build(sorted(near, key=off), data))
        if fitting and off(fitting[0]) <= study.budget.tolerance * wanted:
            return fitting[0].settings
    if not fitting:
        raise UserError(f"entry {entry.name!r}: no width near {crossing} can be built", fix=str(at(crossing)))
    finer = [found for candidate in fitting[:4] for found in _finer(candidate, paths, at, wanted)]
    return next(_that_build(sorted([*finer, fitting[0]], key=off), data)).settings


def _crossing(at: Callable[[int], _Candidate | UserError], wanted: float, entry: EntrySpec) -> int:
    """About where the amount, which rises with the width, passes what is wanted. Widths that do not fit are skipped."""

    def fitting(width: int) -> _Candidate | None:
        candidates = (at(one) for one in range(width, width + _NEAR))
        return next((candidate for candidate in candidates if isinstance(candidate, _Candidate)), None)

    low, high = 1, 2
    while (one := fitting(high)) is None or one.amount < wanted:
        low, high = high, 2 * high
        if high > _WIDEST:
            refusal = at(low)
            why = refusal if isinstance(refusal, UserError) else f"even width {low} has less than {wanted:,.0f}"
            raise UserError(f"entry {entry.name!r}: no width meets the budget", fix=str(why))
    while high - low > 1:
        middle = (low + high) // 2
        one = fitting(middle)
        low, high = (low, middle) if one is None or one.amount >= wanted else (middle, high)
    return high


def _that_build(candidates: list[_Candidate], data: OpenedData) -> Iterator[_Candidate]:
    for candidate in candidates:
        try:
            data.refuse_unbuildable(candidate.spec)
        except ValueError:
            continue
        yield candidate


def _finer(
    candidate: _Candidate,
    paths: tuple[str, ...],
    at: Callable[[int, Mapping[str, Any]], _Candidate | UserError],
    wanted: float,
) -> Iterator[_Candidate]:
    """The same width with more or fewer hidden units in the MLP, or with narrower or wider token vectors."""
    width = candidate.settings[paths[0]]
    for path in paths:
        inside = path.rpartition(".")[0]
        finer = reduce(getattr, inside.split("."), candidate.spec).finer()  # of the model, its encoder or its decoder
        if finer is None:
            continue

        def turned(count: int, finer: Finer = finer, inside: str = inside) -> _Candidate | None:
            candidate = at(width, {f"{inside}.{finer.setting}": finer.value(count)})
            return candidate if isinstance(candidate, _Candidate) else None

        low, high = max(1, finer.units // _STRETCH), _STRETCH * finer.units
        while high - low > 1:
            middle = (low + high) // 2
            one = turned(middle)
            if one is None:  # this setting cannot be turned here
                break
            low, high = (low, middle) if one.amount >= wanted else (middle, high)
        yield from (one for count in (low, high) if (one := turned(count)) is not None)
