"""The same budget for every entry: its width, or how long it trains, is chosen so that it has as much as the others."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple, assert_never

from statewise.comparison.study import IN_STEPS, counted_in_steps, spec_of
from statewise.comparison.study_data import OpenedData, Opener
from statewise.comparison.trial import TRAINING_FLOPS
from statewise.specs import AnyRunSpec, EntrySpec, Finer, HeldKind, StudySpec, UserError

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
        near = [candidate for width in around if isinstance(candidate := at(width), _Candidate)]
        fitting = list(_that_build(sorted(near, key=off), data))
        if fitting and off(fitting[0]) <= study.budget.tolerance * wanted:
            return fitting[0].settings
    if not fitting:
        raise UserError(f"entry {entry.name!r}: no width near {crossing} can be built", fix=str(at(crossing)))
    finer = [variant for candidate in fitting[:4] for variant in _finer(candidate, paths, at, wanted)]
    return next(_that_build(sorted([*finer, fitting[0]], key=off), data)).settings


def _crossing(at: Callable[[int], _Candidate | UserError], wanted: float, entry: EntrySpec) -> int:
    """About where the amount, which rises with the width, passes what is wanted. Widths that do not fit are skipped."""

    def fitting(width: int) -> _Candidate | None:
        candidates = (at(wider) for wider in range(width, width + _NEAR))
        return next((candidate for candidate in candidates if isinstance(candidate, _Candidate)), None)

    low, high = 1, 2
    while (candidate := fitting(high)) is None or candidate.amount < wanted:
        low, high = high, 2 * high
        if high > _WIDEST:
            refusal = at(low)
            why = refusal if isinstance(refusal, UserError) else f"even width {low} has less than {wanted:,.0f}"
            raise UserError(f"entry {entry.name!r}: no width meets the budget", fix=str(why))
    while high - low > 1:
        middle = (low + high) // 2
        candidate = fitting(middle)
        low, high = (low, middle) if candidate is None or candidate.amount >= wanted else (middle, high)
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
            tried = turned(middle)
            if tried is None:  # this setting cannot be turned here
                break
            low, high = (low, middle) if tried.amount >= wanted else (middle, high)
        yield from (tried for count in (low, high) if (tried := turned(count)) is not None)


_SIZES = ("parameters", "state_bytes")
UNITS: dict[HeldKind, str] = {
    "parameters": "parameters",
    "state_bytes": "bytes of state",
    "flops": "training FLOPs",
    "tokens": "training tokens",
    "seconds": "seconds of training",
}


class Wanted(NamedTuple):
    """What each entry is to have, and how much of it."""

    kind: HeldKind
    amount: float


class Held(NamedTuple):
    """What an entry has of what is held equal. `met` is None of seconds: they are known when they have passed."""

    kind: HeldKind
    wanted: float
    met: float | None

    @property
    def error(self) -> float | None:
        """How far it is off, as a share."""
        return None if self.met is None else self.met / self.wanted - 1


class Entry(NamedTuple):
    """A competitor, as it will run. `solved` are the settings that were chosen for it."""

    name: str
    spec: AnyRunSpec
    solved: dict[str, Any]
    held: tuple[Held, ...]  # what holds for it: no size for one that has none, no training for one that counts
    parameters: int
    flops_per_token: float  # forward
    state_bytes: int | None  # after `budget.context` tokens
    data: str  # fingerprint of what it reads

    @property
    def error(self) -> float | None:
        """How far it is off at worst, as far as that is known before training."""
        known = [held.error for held in self.held if held.error is not None]
        return max(known, key=abs, default=None)


def solve(study: StudySpec, *, opener: Opener | None = None) -> list[Entry]:
    """Every entry at the size that meets the budget; refused where none comes within the tolerance."""
    opener = opener or Opener()
    wanted = wanted_amounts(study, opener)
    return [solve_entry(study, entry, opener=opener, wanted=wanted) for entry in study.entry]


def wanted_amounts(study: StudySpec, opener: Opener) -> tuple[Wanted, ...]:
    """How much each entry is to have of what is held equal. What is not said, the first entry decides."""
    wanted: tuple[Wanted, ...] = ()
    for kind, amount in study.budget.held():
        if amount is None:
            bound = [entry for entry in study.entry if _binds(kind, entry, spec_of(study, entry))]
            if not bound:
                raise UserError("no entry of the study has a size", fix="set budget.kind = 'none'")
            spec = solve_entry(study, bound[0], opener=opener, wanted=wanted).spec
            amount = _amount(kind, study, opener(spec), bound[0])(spec)
        wanted = (*wanted, Wanted(kind, amount))
    return wanted


def solve_entry(study: StudySpec, entry: EntrySpec, *, opener: Opener, wanted: Sequence[Wanted]) -> Entry:
    spec = spec_of(study, entry)
    data = opener(spec)
    solved: dict[str, Any] = {}
    held = []
    for kind, asked in wanted:
        if not _binds(kind, entry, spec):
            continue
        amount = _amount(kind, study, data, entry)
        if kind == "parameters" or kind == "state_bytes":
            solved |= solve_width(study, entry, data, amount=amount, wanted=asked)
        elif kind == "seconds":
            solved |= {"train.seconds": asked}
        else:
            solved |= _steps(spec, amount, asked)
        spec = spec_of(study, entry, solved)
        met = None if kind == "seconds" else amount(spec)
        held.append(Held(kind, asked, met))
        _refuse_beyond(study, entry, solved, held[-1])
    return Entry(
        name=entry.name,
        spec=spec,
        solved=solved,
        held=tuple(held),
        parameters=data.parameters(spec),
        flops_per_token=data.flops_per_token(spec),
        state_bytes=data.state_bytes(spec, study.budget.context),
        data=data.fingerprint,
    )


def _binds(kind: HeldKind, entry: EntrySpec, spec: AnyRunSpec) -> bool:
    """A size holds for what has a width, a training for what learns step by step."""
    return entry.width is not None if kind in _SIZES else spec.learns == "gradient"


def _amount(kind: HeldKind, study: StudySpec, data: OpenedData, entry: EntrySpec) -> Amount:
    """What is held equal, as a function of a spec."""

    def state_bytes(spec: AnyRunSpec) -> float:
        size = data.state_bytes(spec, study.budget.context)
        if size is None:
            raise UserError(
                f"entry {entry.name!r} reads a whole input at once: there is no state that goes along it",
                fix="set budget.kind = 'parameters', or reader.bidirectional = false",
            )
        return size

    def tokens(spec: AnyRunSpec) -> float:
        return data.step_tokens(spec) * spec.train.steps

    def flops(spec: AnyRunSpec) -> float:
        return TRAINING_FLOPS * _flops(spec, data) * tokens(spec)

    def seconds(spec: AnyRunSpec) -> float:
        assert spec.train.seconds is not None
        return spec.train.seconds

    match kind:
        case "parameters":
            return data.parameters
        case "state_bytes":
            return state_bytes
        case "flops":
            return flops
        case "tokens":
            return tokens
        case "seconds":
            return seconds
        case _:
            assert_never(kind)


def _refuse_beyond(study: StudySpec, entry: EntrySpec, solved: Mapping[str, Any], held: Held) -> None:
    if held.error is None or abs(held.error) <= study.budget.tolerance:
        return
    derived = set(IN_STEPS) - {"train.steps"}
    chosen = ", ".join(f"{path} = {value:g}" for path, value in solved.items() if path not in derived)
    other = "give the entry other heads, depth or order" if held.kind in _SIZES else "train for longer"
    raise UserError(
        f"entry {entry.name!r}: nothing comes within {study.budget.tolerance:.1%} of {held.wanted:,.0f} "
        f"{UNITS[held.kind]}; the nearest is {chosen}, with {held.met:,.0f} ({abs(held.error):.1%} off)",
        fix=f"change the amount, raise budget.tolerance, or {other}",
    )


def _steps(spec: AnyRunSpec, amount: Amount, wanted: float) -> dict[str, Any]:
    """As many as make up what is wanted. What is counted in steps keeps its share: every entry is judged as often."""
    single_step = spec.model_copy(update={"train": spec.train.model_copy(update={"steps": 1})})
    steps = max(1, round(wanted / amount(single_step)))
    share = steps / max(1, spec.train.steps)
    kept = {path: max(1, round(value * share)) for path, value in counted_in_steps(spec).items() if value}
    return {**kept, "train.steps": steps}


def _flops(spec: AnyRunSpec, data: OpenedData) -> float:
    if spec.step_grows:
        raise UserError(
            f"a {spec.name} that carries its list from window to window costs more with every step",
            fix="set data.order = 'random' to hold FLOPs equal",
        )
    return data.flops_per_token(spec)
