"""The same budget for every entry: its width, or its steps, is chosen so that it has as much as the others."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from statewise.comparison.opened import OpenedData, Opener
from statewise.comparison.study import spec_of
from statewise.specs import AnyRunSpec, LanguageModelSpec, UserError
from statewise.specs.seq2seq import Seq2SeqSpec
from statewise.specs.stacked import StackedSpec
from statewise.specs.study import EntrySpec, StudySpec
from statewise.specs.tree import ComposerSpec

_BACKWARD = 3  # a training step does the work of a forward pass, and twice that to go back
_WIDEST = 1 << 16
_NEAR = 24  # widths on either side of the best that are tried where it does not parse or build
_STRETCH = 4  # how far the finer setting may be from what was written
_UNITS = {"parameters": "parameters", "flops": "training FLOPs", "state_bytes": "bytes of state"}


class Entry(NamedTuple):
    """A competitor, as it will run. `solved` are the settings that were chosen for it."""

    name: str
    spec: AnyRunSpec
    solved: dict[str, Any]
    met: float | None  # how much of the budget it has; None: nothing was held equal, or it has no size
    wanted: float | None
    parameters: int
    flops_per_token: float | None  # forward
    state_bytes: int | None  # after `budget.context` tokens
    data: str  # fingerprint of what it reads

    @property
    def error(self) -> float | None:
        """How far it is off, as a share."""
        if self.met is None or self.wanted is None:
            return None
        return self.met / self.wanted - 1


Amount = Callable[[AnyRunSpec], float]


def solve(study: StudySpec, *, opener: Opener | None = None) -> list[Entry]:
    """Every entry at the size that meets the budget; refused where none comes within the tolerance."""
    opener = opener or Opener()
    wanted = wanted_amount(study, opener)
    return [solve_entry(study, entry, opener=opener, wanted=wanted) for entry in study.entry]


def wanted_amount(study: StudySpec, opener: Opener) -> float | None:
    """How much each entry is to have; None where nothing is held equal."""
    if study.budget.kind == "none":
        return None
    if study.budget.amount is not None:
        return float(study.budget.amount)
    sized = [entry for entry in study.entry if entry.width is not None]
    if not sized:
        raise UserError("no entry of the study has a size", fix="set budget.kind = 'none'")
    spec = spec_of(study, sized[0])
    return _amount(study, opener(spec), sized[0])(spec)


def solve_entry(study: StudySpec, entry: EntrySpec, *, opener: Opener, wanted: float | None) -> Entry:
    spec = spec_of(study, entry)
    data = opener(spec)
    solved: dict[str, Any] = {}
    met = None
    if wanted is not None and entry.width is not None:
        amount = _amount(study, data, entry)
        solved = _steps(spec, data, wanted) if study.budget.kind == "flops" else _width(study, entry, data, wanted)
        spec = spec_of(study, entry, solved)
        met = amount(spec)
        _refuse_beyond(study, entry, solved, met, wanted)
    return Entry(
        name=entry.name,
        spec=spec,
        solved=solved,
        met=met,
        wanted=wanted if met is not None else None,
        parameters=data.parameters(spec),
        flops_per_token=data.flops_per_token(spec),
        state_bytes=data.state_bytes(spec, study.budget.context),
        data=data.fingerprint,
    )


def _amount(study: StudySpec, data: OpenedData, entry: EntrySpec) -> Amount:
    """What is held equal, as a function of a spec."""

    def state_bytes(spec: AnyRunSpec) -> float:
        found = data.state_bytes(spec, study.budget.context)
        if found is None:
            raise UserError(
                f"entry {entry.name!r}: the state of a {spec.task} run has no size by formula",
                fix="set budget.kind = 'parameters'",
            )
        return found

    def flops(spec: AnyRunSpec) -> float:
        return _BACKWARD * _flops(spec, data) * _step_tokens(spec) * spec.train.steps

    match study.budget.kind:
        case "state_bytes":
            return state_bytes
        case "flops":
            return flops
        case _:
            return data.parameters


def _refuse_beyond(study: StudySpec, entry: EntrySpec, solved: Mapping[str, Any], met: float, wanted: float) -> None:
    error = abs(met / wanted - 1)
    if error <= study.budget.tolerance:
        return
    unit = _UNITS[study.budget.kind]
    chosen = ", ".join(f"{path} = {value:g}" for path, value in solved.items())
    raise UserError(
        f"entry {entry.name!r}: nothing comes within {study.budget.tolerance:.1%} of {wanted:,.0f} {unit}; "
        f"the nearest is {chosen}, with {met:,.0f} ({error:.1%} off)",
        fix="change budget.amount, raise budget.tolerance, or give the entry other heads, depth or order",
    )


# -------------------------------------------------------------------- steps


def _steps(spec: AnyRunSpec, data: OpenedData, wanted: float) -> dict[str, Any]:
    """Sizes stay as they are written; whoever costs more is trained for fewer steps."""
    return {"train.steps": max(1, round(wanted / (_BACKWARD * _flops(spec, data) * _step_tokens(spec))))}


def _flops(spec: AnyRunSpec, data: OpenedData) -> float:
    found = data.flops_per_token(spec)
    if not isinstance(spec, LanguageModelSpec) or found is None:
        raise UserError(
            f"budget.kind = 'flops' needs a formula, and a {spec.task} run has none",
            fix="set budget.kind = 'parameters'",
        )
    grows = spec.model.forward_flops(2, 1) > spec.model.forward_flops(2, 0)
    if grows and spec.data.order == "sequential":
        raise UserError(
            f"a {spec.model.kind} that carries its list from window to window costs more with every step",
            fix="set data.order = 'random' to hold FLOPs equal",
        )
    return found


def _step_tokens(spec: AnyRunSpec) -> int:
    return spec.train.batch * spec.train.window_tokens()


# -------------------------------------------------------------------- width


class _Candidate(NamedTuple):
    settings: dict[str, Any]
    spec: AnyRunSpec
    amount: float


def _width(study: StudySpec, entry: EntrySpec, data: OpenedData, wanted: float) -> dict[str, Any]:
    """The width that comes nearest; where the grid of valid widths is too coarse, a finer setting beside it."""
    assert entry.width is not None
    paths = (entry.width,) if isinstance(entry.width, str) else entry.width
    amount = _amount(study, data, entry)

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
    finer = [found for one in fitting[:4] for found in _finer(one, paths, at, wanted)]
    return next(_that_build(sorted([*finer, fitting[0]], key=off), data)).settings


def _crossing(at: Callable[[int], _Candidate | UserError], wanted: float, entry: EntrySpec) -> int:
    """About where the amount, which rises with the width, passes what is wanted. Widths that do not fit are skipped."""

    def fitting(width: int) -> _Candidate | None:
        found = (at(one) for one in range(width, width + _NEAR))
        return next((one for one in found if isinstance(one, _Candidate)), None)

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
    """What parses may still not be buildable: an odd width cannot be turned in pairs, for example."""
    for one in candidates:
        try:
            data.built_parameters(one.spec)
        except ValueError:
            continue
        yield one


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
        part = _part(candidate.spec, inside)
        if isinstance(part, StackedSpec) and part.mlp != "none":
            name, start = f"{inside}.mlp_ratio", part.mlp_width()
            unit = 1 / part.mixer_output()
        elif isinstance(part, StackedSpec | ComposerSpec):
            name, start, unit = f"{inside}.embedding", part.embedding_width, 1.0
        else:
            continue

        def turned(count: int, name: str = name, unit: float = unit) -> _Candidate | None:
            value = count if unit == 1 else count * unit
            found = at(width, {name: value})
            return found if isinstance(found, _Candidate) else None

        low, high = max(1, start // _STRETCH), _STRETCH * start
        while high - low > 1:
            middle = (low + high) // 2
            one = turned(middle)
            if one is None:  # this setting cannot be turned here
                break
            low, high = (low, middle) if one.amount >= wanted else (middle, high)
        yield from (one for count in (low, high) if (one := turned(count)) is not None)


def _part(spec: AnyRunSpec, path: str) -> object:
    """The model of a run, or its encoder or decoder."""
    if isinstance(spec.model, Seq2SeqSpec):
        return spec.model.encoder if path.endswith("encoder") else spec.model.decoder
    return spec.model
