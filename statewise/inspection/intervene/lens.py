"""The lens `intervene`: zero, forget, swap, freeze or silence a part of the state, fork it, and measure the effect.

P cuts (places where something is changed), T tokens after each, Q questions.
"""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from statewise.core import Machine, State, fork, leaves, lens
from statewise.decoding import Sampling
from statewise.display import Progress, plain, rough, share
from statewise.figures import Column, Drawing
from statewise.inspection.finding import Finding
from statewise.inspection.intervene import picture
from statewise.inspection.intervene.address import (
    MOST_PLACES,
    Address,
    Intervention,
    changed,
    on_state,
    parse_address,
    possible,
    units_of,
)
from statewise.inspection.intervene.effect import (
    Cut,
    Effect,
    added_costs,
    base_costs,
    continued,
    cuts,
    fork_divergence,
    observed_names,
    row_costs,
    row_cuts,
    row_effects,
    silenced_row,
    state_after,
    unit_costs,
)
from statewise.inspection.lens import Lens, choose_rows
from statewise.inspection.subject import Subject, open_subject
from statewise.models import TokenMachine
from statewise.specs import Spec, UserError, nearest
from statewise.tasks import Specimen, Specimens, TextSpecimens, Words

_FEWEST_UNITS = 4  # worth a figure
_SHORTEST = 4  # places of a row
_OF_TEXTS = ("other", "ahead", "tokens", "temperature", "seed")  # settings that do not apply to rows


class InterveneSettings(Spec):
    address: str | None = Field(
        None, description="layers.0, layers.0.c_BD, one unit layers.0.c_BD[D=3]; or an observed name, which is silenced"
    )
    other: str | None = Field(None, description="a text (or a file) whose state is carried into this one")
    places: int = Field(8, ge=2, le=256, description="time steps of the text, or rows, at which something is touched")
    ahead: int | None = Field(
        None, ge=4, le=1024, description="tokens that are read after that; default: 48, fewer where the text is short"
    )
    units: int = Field(64, ge=1, description="units of one leaf that are set to 0 one by one")
    tokens: int = Field(60, ge=0, description="tokens that are written after an act")
    temperature: float = Field(0.0, ge=0, description="of what is written; 0: always the likeliest")
    seed: int = Field(0, ge=0, description="of what is written, where there is chance in it")


def apply(subject: Subject, settings: InterveneSettings, progress: Progress) -> Finding:
    if isinstance(subject.specimens, TextSpecimens):
        return _on_text(subject, subject.specimens, settings, progress)
    assert subject.specimens is not None
    return _on_rows(subject, subject.specimens, settings, progress)


def _chosen_leaf(means: picture.Effects, state: State, *, wanted: str | None) -> str | None:
    """The leaf whose units are zeroed one by one: the `wanted` one, or the one whose loss costs most."""
    named = [path for path, leaf in leaves(state) if leaf.is_floating_point() and leaf.dim() > 1]
    zeroed = {
        change.address.path: float(added_P.mean())
        for change, added_P in means.items()
        if change.act == "zero" and change.address.path in named and change.address.axis is None
    }
    if wanted is not None:
        address = parse_address(wanted)
        meant = [path for path in named if address.path and address.covers(path)]
        return meant[0] if len(meant) == 1 and address.axis is None else None
    return max(zeroed, key=lambda path: zeroed[path]) if zeroed else next(iter(named), None)


def _not_all_units(leaf: str, tried: int, size: int) -> list[str]:
    return (
        [f"{leaf} has {size} units; {tried} of them, evenly spaced, were set to 0 one by one"] if size > tried else []
    )


# -------------------------------------------------------------------- a text


def _on_text(subject: Subject, text: TextSpecimens, settings: InterveneSettings, progress: Progress) -> Finding:
    model, unit = subject.machine, "nats a token"
    missing: list[str] = []
    text_cuts = cuts(text, places=settings.places, ahead=settings.ahead)
    if len(text_cuts) < 2:
        raise UserError("there is room for one cut alone in this text", fix="give a longer text")
    interventions = _text_interventions(model, text_cuts[0], settings, missing)
    others, elsewhere = _other_states(subject, text_cuts, settings)
    base_PT = base_costs(model, text_cuts)
    added = added_costs(model, text_cuts, interventions, others, progress)
    means = {change: added_PT.mean(1) for change, added_PT in added.items()}
    leaf = _chosen_leaf(means, text_cuts[0].state, wanted=settings.address)
    by_unit: dict[Address, Tensor] = {}
    if leaf is not None:
        by_unit, size = unit_costs(model, text_cuts, leaf, most=settings.units, progress=progress)
        missing += _not_all_units(leaf, len(by_unit), size)
    forked_PT = fork_divergence(model, text_cuts)
    figures: list[Drawing] = [
        picture.places_figure(means, float(base_PT.mean()), unit=unit, of="the state"),
        picture.recovery_figure(added, Address("") if settings.address is None else interventions[-1].address),
        *([picture.units_figure(by_unit, unit=unit)] if len(by_unit) >= _FEWEST_UNITS else []),
        picture.fork_figure(forked_PT),
    ]
    generated = _continuations(text, text_cuts, others, means, settings)
    first = {change: round(float(added_PT[:, 0].mean()), 6) for change, added_PT in added.items()}
    return Finding(
        "intervene",
        "Interventions",
        subject.name,
        (
            *picture.sentences(
                means,
                by_unit,
                of="the state",
                unit=unit,
                whole=lambda cost: (
                    f"Without its memory the model pays {cost} than the "
                    f"{plain(float(base_PT.mean()))} it pays with it, over the next {base_PT.shape[1]} tokens"
                ),
                elsewhere=elsewhere,
                also={},
            ),
            picture.fork_sentence(forked_PT),
        ),
        tuple(figures),
        (
            picture.effect_table(means, Column("first", "at the first token", "nats"), first, rough, unit=unit),
            *([picture.generated_table(generated)] if generated else []),
        ),
        {
            "cuts": [cut.at for cut in text_cuts],
            "nats": float(base_PT.mean()),
            "added": {f"{change.act} {change.address}": float(added_PT.mean()) for change, added_PT in added.items()},
            "units": {str(address): float(added_P.mean()) for address, added_P in by_unit.items()},
            "forked": [float(kl) for kl in forked_PT.mean(0)],
            "written": dict(generated),
        },
        tuple(missing),
    )


def _text_interventions(
    model: Machine[Any], cut: Cut, settings: InterveneSettings, missing: list[str]
) -> list[Intervention]:
    """On every place of the state, or on the one that the settings name, which may be an observed name."""
    initial = model.init_state(1)
    interventions = on_state(initial, cut.state, settings.address, missing)
    if interventions is not None:
        return interventions
    address = parse_address(settings.address or "")
    names = observed_names(model, cut.state, cut.tokens_T[:1])
    if not any(fnmatchcase(name, address.path) for name in names):
        raise UserError(
            f"nothing in the state, and nothing that is observed, is called {address.path!r}",
            fix=nearest(address.path, [*dict(leaves(cut.state)), *names]),
        )
    return [*possible(initial, [Address("")]), Intervention(address, "silence")]


def _other_states(subject: Subject, places: Sequence[Cut], settings: InterveneSettings) -> tuple[list[State], str]:
    """The states of a swap, and where they are from: another text, or the next cut of this one."""
    if settings.other is None:
        states = [cut.state for cut in places]
        return [*states[1:], states[0]], "another place in the text"
    if subject.run is None:
        raise UserError("a model in memory has no tokenizer to read another text with", fix="leave `other` out")
    tokens_T = open_subject(subject.run, text=settings.other).text_rows.tokens_T
    return [state_after(subject.machine, tokens_T)] * len(places), "the other text"


def _continuations(
    text: TextSpecimens,
    places: Sequence[Cut],
    others: Sequence[State],
    means: picture.Effects,
    settings: InterveneSettings,
) -> list[tuple[str, str]]:
    """Generated text: unchanged, forked with other random numbers, and after the interventions that cost most.

    At the cut where interventions cost most: elsewhere all texts may be equal.
    """
    model = text.model
    if not settings.tokens or not isinstance(model, TokenMachine):
        return []
    where = int(torch.stack(list(means.values())).mean(0).argmax())
    cut, other = places[where], others[where]
    ranked = sorted(
        (mean for mean in means if mean.act not in ("freeze", "silence")),
        key=lambda change: float(means[change].mean()),
    )
    chosen = sorted({change.address: change for change in ranked}.values(), key=ranked.index)[-3:]
    sampling = Sampling(temperature=settings.temperature, seed=settings.seed)
    random = Sampling(temperature=max(settings.temperature, 1.0), seed=settings.seed + 1)
    plans = [("untouched", fork(cut.state), sampling), ("untouched, a fork with chances of its own", cut.state, random)]
    for change in chosen:
        plans.append((str(change), changed(model, cut.state, change.address, change.act, other=other), sampling))
    token = int(cut.tokens_T[0])
    generated = []
    for name, state, how in plans:
        ids = continued(model, state, token, vocab=model.vocab, tokens=settings.tokens, sampling=how)
        generated.append((name, "".join(text.with_tokens(torch.tensor([token, *ids])).names()[1:])))
    return generated


# -------------------------------------------------------------------- rows


class _Measured(NamedTuple):
    effects: dict[Intervention, list[Effect]]  # at every cut
    base_P: Tensor  # loss of an answer without a change
    gaps: list[Tensor]  # of every cut, places between it and its answers
    by_unit: dict[Address, Tensor]
    missing: list[str]

    @property
    def means(self) -> dict[Intervention, Tensor]:
        return {
            change: torch.stack([each.added_Q.mean() for each in several]) for change, several in self.effects.items()
        }


def _on_rows(subject: Subject, specimens: Specimens, settings: InterveneSettings, progress: Progress) -> Finding:
    for name in _OF_TEXTS:
        if name in settings.model_fields_set:
            raise UserError(
                f"{name}: nothing is generated after a row, and a state comes from another row",
                fix=f"leave {name} out",
            )
    words, unit = specimens.words, f"{specimens.words.loss} an answer"
    rows = [specimens.at(at) for at in choose_rows(specimens, settings.places, shortest=_SHORTEST)]
    machine = rows[0].machine
    measured = (
        _change_states(rows, machine, settings, progress) if machine is not None else _silence(rows, settings, progress)
    )
    if not specimens.has_truth:
        measured.missing.append("The right answers are not known: the loss is that of the model's own answers.")
    means, base = measured.means, float(measured.base_P.mean())
    changes = {change: _changed(several, words) for change, several in measured.effects.items()}
    of = "the state" if machine is not None else "the observed values"
    figures: list[Drawing] = [picture.places_figure(means, base, unit=unit, of=of)]
    if machine is not None:
        added = {change: torch.cat([each.added_Q for each in several]) for change, several in measured.effects.items()}
        figures += picture.distance_figure(added, torch.cat(measured.gaps), place=words.place, unit=unit)
    if len(measured.by_unit) >= _FEWEST_UNITS:
        figures.append(picture.units_figure(measured.by_unit, unit=unit))
    sentences = picture.sentences(
        means,
        measured.by_unit,
        of=subject.name,
        unit=unit,
        whole=lambda cost: f"Without its memory {subject.name} pays {cost} than the {plain(base)} it pays with it",
        elsewhere="elsewhere",
        also={change: f"; {_change_words(value, words)}" for change, value in changes.items()},
    )
    column = Column("changed", "answers that change" if words.classes else "how far forecasts move")
    return Finding(
        "intervene",
        "Interventions",
        subject.name,
        tuple(sentences),
        tuple(figures),
        (picture.effect_table(means, column, changes, share if words.classes else rough, unit=unit),),
        {
            "moments": len(measured.base_P),
            "cost": base,
            "added": {f"{change.act} {change.address}": float(added_P.mean()) for change, added_P in means.items()},
            "changed": {f"{change.act} {change.address}": value for change, value in changes.items()},
            "units": {str(address): float(added_P.mean()) for address, added_P in measured.by_unit.items()},
        },
        tuple(measured.missing),
    )


def _changed(several: Sequence[Effect], words: Words) -> float:
    """Of classes, the share of answers that change; of numbers, how far they move."""
    return float(torch.cat([each.flipped_Q if words.classes else each.moved_Q for each in several]).mean())


def _change_words(value: float, words: Words) -> str:
    return f"{share(value)} of the answers change" if words.classes else f"forecasts move by {rough(value)}"


def _change_states(
    rows: Sequence[Specimen], machine: Machine[Any], settings: InterveneSettings, progress: Progress
) -> _Measured:
    """Rows that are read along time: interventions on the state."""
    by_row = [some for row in rows if (some := row_cuts(row, machine))]
    all_cuts = [cut for some in by_row for cut in some]
    if len(all_cuts) < 2:
        raise UserError("there is no time step in these rows with an answer after it", fix="give longer rows")
    missing: list[str] = []
    last = by_row[0][-1]  # a list that grows has entries here
    interventions = on_state(machine.init_state(1), last.state, settings.address, missing)
    if interventions is None:
        path = parse_address(settings.address or "").path
        raise UserError(f"nothing in the state is called {path!r}", fix=nearest(path, dict(leaves(last.state))))
    # A swap takes the state at about the same place of the next row; with a single row, at the next cut.
    following = [*by_row[1:], by_row[0]] if len(by_row) > 1 else [[*all_cuts[1:], all_cuts[0]]]
    others = [next_[min(at, len(next_) - 1)] for some, next_ in zip(by_row, following) for at in range(len(some))]
    effects: dict[Intervention, list[Effect]] = {change: [] for change in interventions}
    for cut, other in progress.over(list(zip(all_cuts, others)), "changing states"):
        for change, effect in row_effects(cut, machine, interventions, other.state).items():
            effects[change].append(effect)
    added = {change: torch.cat([each.added_Q for each in several]) for change, several in effects.items()}
    leaf = _chosen_leaf(added, last.state, wanted=settings.address)
    by_unit: dict[Address, Tensor] = {}
    if leaf is not None:
        addresses, size = units_of(last.state, leaf, most=settings.units)
        zeroes = [Intervention(address, "zero") for address in addresses]
        means: dict[Address, list[Tensor]] = {address: [] for address in addresses}
        for cut in progress.over(all_cuts, "one unit at a time"):
            for change, effect in row_effects(cut, machine, zeroes, cut.state).items():
                means[change.address].append(effect.added_Q.mean())
        by_unit = {address: torch.stack(several) for address, several in means.items()}
        missing += _not_all_units(leaf, len(by_unit), size)
    base_P = torch.stack([row_costs(cut, machine).double().cpu().mean() for cut in all_cuts])
    return _Measured(effects, base_P, [cut.gap_Q for cut in all_cuts], by_unit, missing)


def _silence(rows: Sequence[Specimen], settings: InterveneSettings, progress: Progress) -> _Measured:
    """Rows that are read at once: observed values are set to 0."""
    observed = _observed(min(rows, key=len))
    if not observed:
        raise UserError("this model shows nothing of itself that could be silenced")
    missing = ["A row is read at once, or from several ends: observed values are silenced all along it."]
    if settings.address is None:
        addresses = [Address(name) for name in observed]
        if len(addresses) > MOST_PLACES:
            left = len(addresses) - MOST_PLACES
            missing.append(f"{left} more names are left out; name one of them with the setting address")
            addresses = addresses[:MOST_PLACES]
    else:
        address = parse_address(settings.address)
        meant = [name for name in observed if fnmatchcase(name, address.path or "*")]
        if not meant:
            raise UserError(f"nothing that is observed is called {address.path!r}", fix=nearest(address.path, observed))
        address.part(meant[0], observed[meant[0]])
        addresses = [address]
    effects: dict[Intervention, list[Effect]] = {Intervention(address, "silence"): [] for address in addresses}
    base = []
    for row in progress.over(rows, "silencing"):
        cost_Q, by_address = silenced_row(row, addresses)
        base.append(cost_Q.double().cpu().mean())
        for address, effect in by_address.items():
            effects[Intervention(address, "silence")].append(effect)
    return _Measured(effects, torch.stack(base), [], {}, missing)


@torch.no_grad()
def _observed(row: Specimen) -> Mapping[str, Tensor]:
    """Every name that is observed while a row is read, with the first of its values."""
    first: dict[str, Tensor] = {}

    def note(name: str, value: Tensor) -> Tensor:
        first.setdefault(name, value)
        return value

    z_1TI = row.enter(row.x_TE[None])
    with lens(edit=note, keep=False):
        row.read(z_1TI)
    return first


LENS = Lens(
    "intervene",
    "What happens when a part of the state is set to 0, forgotten, swapped, held still or forked.",
    quick=True,
    settings=InterveneSettings,
    apply=apply,
)
