"""The lens `intervene` on tasks that answer row by row: parts of a state, or of what a model shows of itself.

P moments of rows, Q questions.
"""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import torch
from torch import Tensor

from statewise.core import Machine, leaves, lens
from statewise.display import plain, rough, share
from statewise.figures import Axis, Column, Drawing, Figure, Series, Table, number, words
from statewise.inspection.finding import Finding, Named
from statewise.inspection.intervene.address import Address, parse_address
from statewise.inspection.intervene.drawing import doubling, places_figure, units_figure, with_error
from statewise.inspection.intervene.measure import MOST_PLACES, WORDS, Deed, asked_of_state, one_by_one
from statewise.inspection.intervene.row_measure import Effect, RowCut, after, costs_before, row_cuts, silenced_rows
from statewise.inspection.intervene.settings import InterveneSettings
from statewise.inspection.intervene.words import beside_none, sure, without, worst_part
from statewise.inspection.lens import choose_rows
from statewise.inspection.progress import Progress
from statewise.inspection.subject import Subject
from statewise.specs import UserError, nearest
from statewise.tasks import Specimen, Specimens, Words

_FEWEST_UNITS = 4  # worth one
_SHORTEST = 4  # places of a row that is touched
_OF_TEXTS = ("other", "ahead", "tokens", "temperature", "seed")  # settings that rows have no use for


class _Found(NamedTuple):
    effects: dict[Deed, list[Effect]]  # at every moment
    base: Tensor  # what an answer costs untouched, of every moment
    gaps: list[Tensor]  # of every moment, places between the act and its answers
    by_unit: dict[Address, Tensor]
    missing: tuple[str, ...]


def look_at_rows(subject: Subject, specimens: Specimens, settings: InterveneSettings, progress: Progress) -> Finding:
    for name in _OF_TEXTS:
        if name in settings.model_fields_set:
            raise UserError(
                f"{name}: nothing is written after a row, and a state comes from another row", fix=f"leave {name} out"
            )
    spoken = specimens.words
    rows = [specimens.at(at) for at in choose_rows(specimens, settings.places, shortest=_SHORTEST)]
    machine = rows[0].machine
    found = (
        _touched(rows, machine, settings, progress)
        if machine is not None
        else _silenced(rows, settings, progress, spoken)
    )
    missing = list(found.missing)
    if not specimens.told:
        missing.append("What is right is not known here: the cost is that of the model's own answer.")
    unit = f"{spoken.loss} an answer"
    means = {deed: torch.stack([one.added_Q.mean() for one in several]) for deed, several in found.effects.items()}
    of = "the state" if machine is not None else "what it shows of itself"
    figures: list[Drawing] = [places_figure({d: m[:, None] for d, m in means.items()}, found.base, unit=unit, of=of)]
    if machine is not None:
        figures += _felt(found, spoken, unit)
    if len(found.by_unit) >= _FEWEST_UNITS:
        figures.append(units_figure(found.by_unit, unit=unit))
    return Finding(
        "intervene",
        "Interventions",
        subject.name,
        tuple(_sentences(subject.name, found, means, spoken, unit)),
        tuple(figures),
        (_table(found, means, spoken, unit),),
        {
            "moments": len(found.base),
            "cost": float(found.base.mean()),
            "added": {f"{deed.act} {deed.address}": float(one_P.mean()) for deed, one_P in means.items()},
            "changed": {f"{deed.act} {deed.address}": _changed(found.effects[deed], spoken) for deed in means},
            "units": {str(address): float(one_P.mean()) for address, one_P in found.by_unit.items()},
        },
        tuple(missing),
    )


# -------------------------------------------------------------------- along time: the state


def _touched(
    rows: Sequence[Specimen], machine: Machine[Any], settings: InterveneSettings, progress: Progress
) -> _Found:
    by_row = [some for one in rows if (some := row_cuts(one, machine))]
    cuts = [cut for some in by_row for cut in some]
    if len(cuts) < 2:
        raise UserError("there is no time step in these rows with an answer after it", fix="give longer rows")
    missing: list[str] = []
    fullest = by_row[0][-1]  # where a list has begun to grow
    deeds = _deeds(machine, fullest, settings, missing)
    # What a swap brings in is from about as far in the next row; of a single row, from another moment.
    following = [*by_row[1:], by_row[0]] if len(by_row) > 1 else [[*cuts[1:], cuts[0]]]
    others = [next_[min(at, len(next_) - 1)] for some, next_ in zip(by_row, following) for at in range(len(some))]
    effects: dict[Deed, list[Effect]] = {deed: [] for deed in deeds}
    for cut, other in progress.over(list(zip(cuts, others)), "touching states"):
        for deed, effect in after(cut, machine, deeds, other.state).items():
            effects[deed].append(effect)
    leaf = _chosen_leaf(effects, fullest, settings)
    by_unit: dict[Address, Tensor] = {}
    if leaf is not None:
        addresses, size = one_by_one(fullest.state, leaf, most=settings.units)
        zeroes = [Deed(address, "zero") for address in addresses]
        added: dict[Address, list[Tensor]] = {address: [] for address in addresses}
        for cut in progress.over(cuts, "one unit at a time"):
            for deed, effect in after(cut, machine, zeroes, cut.state).items():
                added[deed.address].append(effect.added_Q.mean())
        by_unit = {address: torch.stack(several) for address, several in added.items()}
        if size > len(by_unit):
            missing.append(f"{leaf} has {size} units; {len(by_unit)} of them, evenly spaced, were set to 0 one by one")
    base_P = torch.stack([costs_before(cut, machine).double().cpu().mean() for cut in cuts])
    return _Found(effects, base_P, [cut.gap_Q for cut in cuts], by_unit, tuple(missing))


def _deeds(machine: Machine[Any], cut: RowCut, settings: InterveneSettings, missing: list[str]) -> list[Deed]:
    found = asked_of_state(machine.init_state(1), cut.state, settings.address, missing)
    if found is None:
        path = parse_address(settings.address or "").path
        raise UserError(f"nothing in the state is called {path!r}", fix=nearest(path, dict(leaves(cut.state))))
    return found


def _chosen_leaf(effects: Mapping[Deed, list[Effect]], cut: RowCut, settings: InterveneSettings) -> str | None:
    """The leaf whose units are tried one by one: the one asked for, or that whose loss costs most."""
    named = {path for path, leaf in leaves(cut.state) if leaf.is_floating_point() and leaf.dim() > 1}
    zeroed = {
        deed.address.path: float(torch.cat([one.added_Q for one in several]).mean())
        for deed, several in effects.items()
        if deed.act == "zero" and deed.address.path in named and deed.address.axis is None
    }
    if settings.address is not None and len(zeroed) != 1:
        return None
    return max(zeroed, key=lambda path: zeroed[path]) if zeroed else None


def _felt(found: _Found, spoken: Words, unit: str) -> list[Drawing]:
    """Acts on everything, by how far from the answer they were done."""
    series, last = [], {}
    for deed, several in found.effects.items():
        if deed.address.path:
            continue
        gap_N = torch.cat(found.gaps)
        added_N = torch.cat([one.added_Q for one in several])
        points = []
        for begin, stop in doubling(int(gap_N.max())):
            some = added_N[(gap_N > begin) & (gap_N <= stop)]
            if len(some) > 1:
                points.append((float(gap_N[(gap_N > begin) & (gap_N <= stop)].double().mean()), *with_error(some)))
        if len(points) > 1:
            x, mean, low, high = zip(*points)
            series.append(Series(WORDS[deed.act], x, mean, low, high))
            last[deed] = (x[-1], mean[-1])
    if not series:
        return []
    worst = max(last, key=lambda deed: last[deed][1])
    return [
        Figure(
            "intervene-distance",
            "How far from the answer it is felt",
            "line",
            Axis(f"{spoken.place}s between the act and the answer", "log", "whole", base=2),
            Axis(f"added loss, {unit}"),
            tuple(series),
            "Where a curve comes back to 0, enough was read since to do without what was touched.",
            f"About {rough(last[worst][0])} {spoken.place}s before the answer, everything {WORDS[worst.act]} adds "
            f"{rough(last[worst][1])} {unit}.",
        )
    ]


# -------------------------------------------------------------------- all at once: what is observed


def _silenced(rows: Sequence[Specimen], settings: InterveneSettings, progress: Progress, spoken: Words) -> _Found:
    shown = _shown(min(rows, key=len))
    if not shown:
        raise UserError("this model shows nothing of itself that could be silenced")
    missing = ["A row is read at once, or from several ends: what the model shows of itself is silenced all along it."]
    if settings.address is None:
        addresses = [Address(name) for name in shown]
        if len(addresses) > MOST_PLACES:
            left = len(addresses) - MOST_PLACES
            missing.append(f"{left} further names; the setting address looks at one of them")
            addresses = addresses[:MOST_PLACES]
    else:
        address = parse_address(settings.address)
        meant = [name for name in shown if fnmatchcase(name, address.path or "*")]
        if not meant:
            raise UserError(f"nothing that is observed is called {address.path!r}", fix=nearest(address.path, shown))
        address.part(meant[0], shown[meant[0]])
        addresses = [address]
    effects: dict[Deed, list[Effect]] = {Deed(address, "silence"): [] for address in addresses}
    base = []
    for one in progress.over(rows, "silencing"):
        cost_Q, found = silenced_rows(one, addresses)
        base.append(cost_Q.double().cpu().mean())
        for address, effect in found.items():
            effects[Deed(address, "silence")].append(effect)
    return _Found(effects, torch.stack(base), [], {}, tuple(missing))


@torch.no_grad()
def _shown(one: Specimen) -> dict[str, Tensor]:
    """Every name that is observed while a row is read, with the first of its values."""
    first: dict[str, Tensor] = {}

    def note(name: str, value: Tensor) -> Tensor:
        first.setdefault(name, value)
        return value

    z_1TI = one.enter(one.x_TE[None])
    with lens(edit=note, keep=False):
        one.read(z_1TI)
    return first


# -------------------------------------------------------------------- words


def _changed(several: Sequence[Effect], spoken: Words) -> float:
    """Of classes, the share of answers that are now others; of numbers, how far they moved."""
    parts = [one.flipped_Q if spoken.classes else one.moved_Q for one in several]
    return float(torch.cat(parts).mean())


def _changed_words(several: Sequence[Effect], spoken: Words) -> str:
    value = _changed(several, spoken)
    return f"{share(value)} of the answers change" if spoken.classes else f"forecasts move by {rough(value)}"


def _sentences(name: str, found: _Found, means: Mapping[Deed, Tensor], spoken: Words, unit: str) -> list[str]:
    mean = {deed: float(one_P.mean()) for deed, one_P in means.items()}
    said = []
    whole = Deed(Address(""), "forget")
    if whole in mean:
        said.append(
            f"Without its memory {name} pays {without(means[whole], unit)} than the "
            f"{plain(float(found.base.mean()))} it pays with it; {_changed_words(found.effects[whole], spoken)}."
        )
    parts = {deed: one_P for deed, one_P in means.items() if deed.address.path and deed.act in ("zero", "silence")}
    if parts:
        worst, costs = worst_part(parts, name, unit)
        said.append(f"{costs}; {_changed_words(found.effects[worst], spoken)}.")
    swapped = Deed(Address(""), "swap")
    if swapped in mean and whole in mean:
        said.append(
            f"A state from elsewhere costs {sure(means[swapped])}: {beside_none(means[swapped], means[whole])}."
        )
    if found.by_unit:
        one = max(found.by_unit, key=lambda address: float(found.by_unit[address].mean()))
        said.append(f"The unit that is missed most is {one}: {rough(float(found.by_unit[one].mean()))} {unit}.")
    return said


def _table(found: _Found, means: Mapping[Deed, Tensor], spoken: Words, unit: str) -> Named:
    rows = []
    for deed, one_P in means.items():
        changed = _changed(found.effects[deed], spoken)
        rows.append(
            (
                words(str(deed.address)),
                words(WORDS[deed.act]),
                number(float(one_P.mean()), rough),
                number(float(one_P.std() / len(one_P) ** 0.5) if len(one_P) > 1 else None, rough),
                number(changed, share if spoken.classes else rough),
            )
        )
    columns = (
        Column("place", "place", text=True),
        Column("act", "what was done", text=True),
        Column("added", "added loss", unit),
        Column("error", "standard error", unit),
        Column("changed", "answers that change" if spoken.classes else "how far forecasts move"),
    )
    reading = "Means over the answers after each act, and over the moments at which it was done."
    return Named("intervene-effects", "What each act costs", reading, Table(columns, tuple(rows)))
