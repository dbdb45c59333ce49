"""Interventions: zero, forget, swap or hold still a part of the state, carry it elsewhere, fork it, and see.

P moments (cuts), T tokens after each.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor

from statewise.core import Machine, State, fork, leaves
from statewise.decoding import Sampling
from statewise.display import plain, rough
from statewise.figures import Cell, Column, Table, number, words
from statewise.inspection.finding import Finding, Named
from statewise.inspection.intervene.address import Address, parse_address
from statewise.inspection.intervene.cut import Cut, cuts, state_after
from statewise.inspection.intervene.drawing import forked_figure, places_figure, recovery_figure, units_figure
from statewise.inspection.intervene.effect import continued, observed_names, touched
from statewise.inspection.intervene.measure import (
    WORDS,
    Deed,
    asked_of_state,
    base_costs,
    measured,
    possible,
    remembered,
    units,
)
from statewise.inspection.intervene.rows import look_at_rows
from statewise.inspection.intervene.settings import InterveneSettings
from statewise.inspection.intervene.words import beside_none, sure, without, worst_part
from statewise.inspection.lens import ROW_TASKS, Lens
from statewise.inspection.progress import Progress
from statewise.inspection.subject import Subject, open_subject
from statewise.inspection.text import Reading
from statewise.models import TokenMachine
from statewise.specs import UserError, nearest

_FEWEST_UNITS = 4  # worth one


def look(subject: Subject, settings: InterveneSettings, progress: Progress) -> Finding:
    if subject.specimens is not None:
        return look_at_rows(subject, subject.specimens, settings, progress)
    model, reading = subject.machine, subject.tokens
    missing: list[str] = []
    found = cuts(model, reading, places=settings.places, ahead=settings.ahead)
    if len(found) < 2:
        raise UserError("there is room for one cut alone in this text", fix="give a longer text")
    deeds = _deeds(model, found[0], settings, missing)
    others, elsewhere = _others(subject, found, settings)
    base_PT = base_costs(model, found)
    effects = measured(model, found, deeds, others, progress)
    leaf = _chosen_leaf(effects, found[0].state, settings)
    by_unit: dict[Address, Tensor] = {}
    if leaf is not None:
        by_unit = units(model, found, leaf, most=settings.units, progress=progress)
        size = _counted(found[0].state, by_unit)
        if size > len(by_unit):
            missing.append(f"{leaf} has {size} units; {len(by_unit)} of them, evenly spaced, were set to 0 one by one")
    forked_PT = remembered(model, found)
    figures = [
        places_figure(effects, base_PT),
        recovery_figure(effects, Address("") if settings.address is None else deeds[-1].address),
        *([units_figure(by_unit)] if len(by_unit) >= _FEWEST_UNITS else []),
        forked_figure(forked_PT),
    ]
    written = _continuations(model, reading, found, others, effects, settings)
    return Finding(
        "intervene",
        "Interventions",
        subject.name,
        tuple(_sentences(effects, base_PT, by_unit, forked_PT, elsewhere)),
        tuple(figures),
        (_effect_table(effects), *([_written_table(written)] if written else [])),
        {
            "cuts": [cut.at for cut in found],
            "nats": float(base_PT.mean()),
            "added": {f"{deed.act} {deed.address}": float(one_PT.mean()) for deed, one_PT in effects.items()},
            "units": {str(address): float(one_P.mean()) for address, one_P in by_unit.items()},
            "forked": [float(one) for one in forked_PT.mean(0)],
            "written": dict(written),
        },
        tuple(missing),
    )


def _deeds(model: Machine[Any], cut: Cut, settings: InterveneSettings, missing: list[str]) -> list[Deed]:
    """What is done: everything that can be to every place, or to the one that is asked for."""
    initial = model.init_state(1)
    found = asked_of_state(initial, cut.state, settings.address, missing)
    if found is not None:
        return found
    address = parse_address(settings.address or "")
    shown = observed_names(model, cut.state, cut.tokens_T[:1])
    if not any(fnmatchcase(name, address.path) for name in shown):
        raise UserError(
            f"nothing in the state, and nothing that is observed, is called {address.path!r}",
            fix=nearest(address.path, [*dict(leaves(cut.state)), *shown]),
        )
    return [*possible(initial, [Address("")]), Deed(address, "silence")]


def _others(subject: Subject, found: Sequence[Cut], settings: InterveneSettings) -> tuple[list[State], str]:
    """The states that a swap brings in, and where they are from: another text, or the next moment of this one."""
    if settings.other is None:
        states = [cut.state for cut in found]
        return [*states[1:], states[0]], "another moment of the text"
    if subject.run is None:
        raise UserError("a model in memory has no tokenizer to read another text with", fix="leave `other` out")
    tokens_T = open_subject(subject.run, text=settings.other).tokens.tokens_T
    return [state_after(subject.machine, tokens_T)] * len(found), "the other text"


def _chosen_leaf(effects: Mapping[Deed, Tensor], state: State, settings: InterveneSettings) -> str | None:
    """The leaf whose units are tried one by one: the one asked for, or that whose loss costs most."""
    named = {path: leaf for path, leaf in leaves(state) if leaf.is_floating_point() and leaf.dim() > 1}
    if settings.address is not None:
        address = parse_address(settings.address)
        meant = [path for path in named if address.path and address.covers(path)]
        return meant[0] if len(meant) == 1 and address.axis is None else None
    zeroed = {
        deed.address.path: float(one_PT.mean())
        for deed, one_PT in effects.items()
        if deed.act == "zero" and deed.address.path in named
    }
    return max(zeroed, key=lambda path: zeroed[path]) if zeroed else next(iter(named), None)


def _counted(state: State, by_unit: Mapping[Address, Tensor]) -> int:
    address = next(iter(by_unit))
    leaf = dict(leaves(state))[address.path]
    part = address.part(address.path, leaf)
    return leaf.shape[len(part) - 1]


def _continuations(
    model: Machine[Any],
    reading: Reading,
    found: Sequence[Cut],
    others: Sequence[State],
    effects: Mapping[Deed, Tensor],
    settings: InterveneSettings,
) -> list[tuple[str, str]]:
    """What is written: untouched, forked with other chances, and after the acts that cost most.

    At the moment at which memory matters most: elsewhere all might well write the same.
    """
    if not settings.tokens or not isinstance(model, TokenMachine):
        return []
    where = int(torch.stack([one_PT.mean(1) for one_PT in effects.values()]).mean(0).argmax())
    cut, other = found[where], others[where]
    ranked = sorted(
        (deed for deed in effects if deed.act not in ("freeze", "silence")),
        key=lambda deed: float(effects[deed].mean()),
    )
    chosen = sorted({deed.address: deed for deed in ranked}.values(), key=ranked.index)[-3:]
    sampling = Sampling(temperature=settings.temperature, seed=settings.seed)
    lively = Sampling(temperature=max(settings.temperature, 1.0), seed=settings.seed + 1)
    plans = [("untouched", fork(cut.state), sampling), ("untouched, a fork with chances of its own", cut.state, lively)]
    for deed in chosen:
        state = touched(model, cut.state, deed.address, deed.act, other=other)
        plans.append((f"{deed.address} {WORDS[deed.act]}", state, sampling))
    token = int(cut.tokens_T[0])
    written = []
    for name, state, how in plans:
        ids = continued(model, state, token, vocab=model.vocab, tokens=settings.tokens, sampling=how)
        written.append((name, "".join(replace(reading, tokens_T=torch.tensor([token, *ids])).names()[1:])))
    return written


def _sentences(
    effects: Mapping[Deed, Tensor],
    base_PT: Tensor,
    by_unit: Mapping[Address, Tensor],
    forked_PT: Tensor,
    elsewhere: str,
) -> list[str]:
    means = {deed: one_PT.mean(1) for deed, one_PT in effects.items()}
    parts = {deed: one_P for deed, one_P in means.items() if deed.address.path and deed.act in ("zero", "silence")}
    said = []
    whole = means.get(Deed(Address(""), "forget"))
    if whole is not None:
        said.append(
            f"Without its memory the model pays {without(whole, 'nats a token')} than the "
            f"{plain(float(base_PT.mean()))} it pays with it, over the next {base_PT.shape[1]} tokens."
        )
    if parts:
        said.append(f"{worst_part(parts, 'the state', 'nats a token')[1]}.")
    swapped = means.get(Deed(Address(""), "swap"))
    if swapped is not None and whole is not None:
        said.append(f"A state from {elsewhere} costs {sure(swapped)}: {beside_none(swapped, whole)}.")
    if by_unit:
        one = max(by_unit, key=lambda address: float(by_unit[address].mean()))
        said.append(f"The unit that is missed most is {one}: {rough(float(by_unit[one].mean()))} nats a token.")
    kl_T = forked_PT.mean(0)
    half = next((at for at, value in enumerate(kl_T.tolist()) if value < float(kl_T[0]) / 2), None)
    said.append(
        f"One token read differently is half forgotten {half} token{'' if half == 1 else 's'} later."
        if half is not None
        else f"One token read differently is not half forgotten {len(kl_T)} tokens later."
    )
    return said


def _effect_table(effects: Mapping[Deed, Tensor]) -> Named:
    rows = []
    for deed, one_PT in effects.items():
        one_P = one_PT.mean(1)
        error = float(one_P.std() / len(one_P) ** 0.5)
        first = float(one_PT[:, 0].mean())
        rows.append(
            (
                words(str(deed.address)),
                words(WORDS[deed.act]),
                number(float(one_P.mean()), rough),
                number(error, rough),
                number(round(first, 6), rough),
            )
        )
    columns = (
        Column("place", "place in the state", text=True),
        Column("act", "what was done", text=True),
        Column("added", "added loss", "nats a token"),
        Column("error", "standard error", "nats a token"),
        Column("first", "at the first token", "nats"),
    )
    reading = (
        "Added loss is the mean over the tokens after the act, and over the moments; its error is over the moments."
    )
    return Named("intervene-effects", "What each act costs", reading, Table(columns, tuple(rows)))


def _readable(text: str) -> str:
    """What is blank is counted: an empty cell looks as if something had gone wrong."""
    return text if text.strip() else f"({len(text)} blanks)" if text else "(nothing)"


def _written_table(written: Sequence[tuple[str, str]]) -> Named:
    columns = (Column("act", "what was done", text=True), Column("text", "what it then writes", text=True))
    rows = tuple((words(name), Cell(text, _readable(text))) for name, text in written)
    reading = "All go on from the moment at which memory matters most; only the state differs, or the chances."
    return Named("intervene-written", "Continuations", reading, Table(columns, rows))


LENS = Lens(
    "intervene",
    "What happens when a part of the state is set to 0, forgotten, swapped, held still or forked.",
    ("language_model", *ROW_TASKS),
    quick=True,
    settings=InterveneSettings,
    look=look,
)
