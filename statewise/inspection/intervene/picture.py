"""Figures, tables and sentences about interventions, for texts and for rows.

P cuts (places where something is changed), T tokens after each.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from torch import Tensor

from statewise.display import Format, rough, with_interval
from statewise.figures import Axis, Cell, Column, Drawing, Figure, Series, table_of
from statewise.inspection.finding import Named
from statewise.inspection.intervene.address import ACT_NAMES, Address, Intervention
from statewise.inspection.lens import half_width, short_names

Effects = Mapping[Intervention, Tensor]  # added loss [P], the mean over what follows each cut

_ROWS = 16
_ROOM = 18  # letters beside a picture


# -------------------------------------------------------------------- sentences


def with_error(values_P: Tensor) -> tuple[float, float, float]:
    """Mean, and two standard errors below and above it."""
    mean, error = float(values_P.mean()), 2 * float(values_P.std()) / len(values_P) ** 0.5
    return mean, mean - error, mean + error


def with_half(added_P: Tensor) -> str:
    """A mean over cuts with its 95 % interval."""
    values = [float(value) for value in added_P]
    return with_interval(sum(values) / len(values), half_width(values))


def difference(added_P: Tensor, unit: str) -> str:
    """How much more or less, with its interval."""
    less = float(added_P.mean()) < 0
    return f"{with_half(-added_P if less else added_P)} {unit} {'less' if less else 'more'}"


def worst_part(parts: Effects, of: str, unit: str) -> tuple[Intervention, str]:
    """Of parts with the same act: the one whose loss costs most, and a sentence without its end."""
    worst = max(parts, key=lambda part: float(parts[part].mean()))
    costs = f"{with_half(parts[worst])} {unit}"
    act = ACT_NAMES[worst.act]
    if len(parts) == 1:
        return worst, f"{worst} costs {costs}"
    if float(parts[worst].mean()) <= 0:
        return worst, f"None of {len(parts)} parts of {of}, each {act}, increases the loss"
    return worst, f"Of {len(parts)} parts of {of}, each {act}, {worst.address} costs most: {costs}"


def against_none(other_P: Tensor, none_P: Tensor) -> str:
    """Whether another state is worse than the initial one at the same cuts, beyond chance."""
    apart_P = other_P - none_P
    half, mean = half_width([float(value) for value in apart_P]), float(apart_P.mean())
    if half is None or abs(mean) <= half:
        return "not significantly better or worse than none"
    return f"{'worse' if mean > 0 else 'better'} than none"


def sentences(
    effects: Effects,
    by_unit: Mapping[Address, Tensor],
    *,
    of: str,
    unit: str,
    whole: Callable[[str], str],
    elsewhere: str,
    also: Mapping[Intervention, str],
) -> list[str]:
    """`whole`: from the cost of forgetting everything to a sentence; `also`: more on an intervention."""
    said = []
    forgotten, swapped = (Intervention(Address(""), act) for act in ("forget", "swap"))
    if forgotten in effects:
        said.append(f"{whole(difference(effects[forgotten], unit))}{also.get(forgotten, '')}.")
    parts = {
        intervention: added_P
        for intervention, added_P in effects.items()
        if intervention.address.path and intervention.act in ("zero", "silence")
    }
    if parts:
        worst, costs = worst_part(parts, of, unit)
        said.append(f"{costs}{also.get(worst, '')}.")
    if swapped in effects and forgotten in effects:
        compared = against_none(effects[swapped], effects[forgotten])
        said.append(f"A state from {elsewhere} costs {with_half(effects[swapped])}: {compared}.")
    if by_unit:
        most = max(by_unit, key=lambda address: float(by_unit[address].mean()))
        said.append(f"The most important unit is {most}: {rough(float(by_unit[most].mean()))} {unit}.")
    return said


def fork_sentence(forked_PT: Tensor) -> str:
    kl_T = forked_PT.mean(0)
    half = next((at for at, value in enumerate(kl_T.tolist()) if value < float(kl_T[0]) / 2), None)
    if half is None:
        return f"The effect of one different token has not halved after {len(kl_T)} tokens."
    return f"The effect of one different token has halved after {half} token{'' if half == 1 else 's'}."


# -------------------------------------------------------------------- tables


def effect_table(
    effects: Effects, last: Column, values: Mapping[Intervention, float], form: Format, *, unit: str
) -> Named:
    """One row an intervention; `last` is a column of its own for texts and for rows."""

    def error(intervention: Intervention) -> float | None:
        return (
            float(effects[intervention].std() / len(effects[intervention]) ** 0.5)
            if len(effects[intervention]) > 1
            else None
        )

    table = table_of(
        effects,
        (Column("place", "place", text=True), lambda effect: str(effect.address), None),
        (Column("act", "intervention", text=True), lambda effect: ACT_NAMES[effect.act], None),
        (Column("added", "added loss", unit), lambda effect: float(effects[effect].mean()), rough),
        (Column("error", "standard error", unit), error, rough),
        (last, lambda effect: values[effect], form),
    )
    reading = "Added loss is the mean over what follows each cut, and over the cuts; its error is over the cuts."
    return Named("intervene-effects", "Cost of each intervention", reading, table)


def generated_table(generated: Sequence[tuple[str, str]]) -> Named:
    table = table_of(
        generated,
        (Column("act", "intervention", text=True), lambda pair: pair[0], None),
        (Column("text", "generated text", text=True), lambda pair: Cell(pair[1], _readable(pair[1])), None),
    )
    reading = "All continue from the cut where interventions cost most; only the state differs, or the random numbers."
    return Named("intervene-written", "Continuations", reading, table)


def _readable(text: str) -> str:
    """Blanks are counted: an empty cell looks like a mistake."""
    return text if text.strip() else f"({len(text)} blanks)" if text else "(nothing)"


# -------------------------------------------------------------------- figures


def places_figure(effects: Effects, base: float, *, unit: str, of: str) -> Figure:
    names = list(dict.fromkeys(str(effect.address) for effect in effects))
    series = []
    for act in dict.fromkeys(effect.act for effect in effects):
        chosen = {
            str(intervention.address): with_error(added_P)
            for intervention, added_P in effects.items()
            if intervention.act == act
        }
        means, lows, highs = zip(*chosen.values())
        rows = tuple(float(names.index(name)) for name in chosen)
        series.append(Series(ACT_NAMES[act], means, rows, lows, highs))
    worst = max(effects, key=lambda effect: float(effects[effect].mean()))
    return Figure(
        "intervene-places",
        f"Cost of losing each part of {of}",
        "dots",
        Axis(f"added loss, {unit}"),
        Axis("", "category", categories=tuple(short_names(names) if max(map(len, names)) > _ROOM else names)),
        tuple(series),
        "Further right: a higher loss after the intervention; a bar is two standard errors over the cuts.",
        f"Most is added by {worst}: {rough(float(effects[worst].mean()))} {unit}, to the {rough(base)} without an "
        "intervention.",
    )


def doubling(length: int) -> list[tuple[int, int]]:
    """1, 2, 3 – 4, 5 – 8, …: intervals that grow, as the effect fades."""
    edges = [0, 1]
    while edges[-1] < length:
        edges.append(min(2 * edges[-1], length))
    return list(pairwise(edges))


def recovery_figure(added: Mapping[Intervention, Tensor], address: Address) -> Figure:
    """`added`: loss of each token after the cut, `[P, T]`."""
    series, last = [], {}
    for change, added_PT in added.items():
        if change.address == address:
            bins = [with_error(added_PT[:, begin:stop].mean(1)) for begin, stop in doubling(added_PT.shape[1])]
            x = tuple((begin + 1 + stop) / 2 for begin, stop in doubling(added_PT.shape[1]))
            means, lows, highs = zip(*bins)
            series.append(Series(ACT_NAMES[change.act], x, means, lows, highs))
            last[change] = means[-1]
    worst = max(last, key=last.__getitem__)
    return Figure(
        "intervene-recovery",
        f"Recovery after an intervention: {address}",
        "line",
        Axis("tokens since the intervention", "log", "whole", base=2),
        Axis("added loss, nats a token"),
        tuple(series),
        "Where a curve returns to 0, the model has read enough to make up for the change.",
        f"In the last interval, {worst} adds {rough(last[worst])} nats a token.",
    )


def distance_figure(added: Mapping[Intervention, Tensor], gap_N: Tensor, *, place: str, unit: str) -> list[Drawing]:
    """Interventions on everything, by their distance to the answer; `added` `[N]` for all answers."""
    series, last = [], {}
    for change, added_N in added.items():
        if change.address.path:
            continue
        points = []
        for begin, stop in doubling(int(gap_N.max())):
            inside_N = (gap_N > begin) & (gap_N <= stop)
            if int(inside_N.sum()) > 1:
                points.append((float(gap_N[inside_N].double().mean()), *with_error(added_N[inside_N])))
        if len(points) > 1:
            x, mean, low, high = zip(*points)
            series.append(Series(ACT_NAMES[change.act], x, mean, low, high))
            last[change] = (x[-1], mean[-1])
    if not series:
        return []
    worst = max(last, key=lambda change: last[change][1])
    return [
        Figure(
            "intervene-distance",
            "Effect by distance to the answer",
            "line",
            Axis(f"{place}s between the intervention and the answer", "log", "whole", base=2),
            Axis(f"added loss, {unit}"),
            tuple(series),
            "Where a curve returns to 0, the model has read enough to make up for the change.",
            f"About {rough(last[worst][0])} {place}s before the answer, {worst} adds {rough(last[worst][1])} {unit}.",
        )
    ]


def units_figure(by_unit: Mapping[Address, Tensor], *, unit: str) -> Figure:
    ranked: Sequence[Address] = sorted(by_unit, key=lambda address: -float(by_unit[address].mean()))
    mean = {address: float(added_P.mean()) for address, added_P in by_unit.items()}
    top = ranked[:_ROWS]
    total = sum(max(value, 0.0) for value in mean.values())
    part = sum(max(mean[address], 0.0) for address in ranked[: max(1, len(ranked) // 10)])
    return Figure(
        "intervene-units",
        f"The most important units of {ranked[0].path}",
        "bars",
        Axis(f"added loss, {unit}"),
        Axis("", "category", categories=tuple(f"{address.axis} = {address.number}" for address in top)),
        (Series("set to 0", tuple(mean[address] for address in top), tuple(float(at) for at in range(len(top)))),),
        "Each bar is one unit (or head) of it, set to 0 on its own, at every cut in turn.",
        f"A tenth of {len(ranked)} units has {part / total:.0%} of the cost of all single units."
        if total > 0
        else "No unit costs anything on its own.",
    )


def fork_figure(forked_PT: Tensor) -> Figure:
    kl_T = forked_PT.mean(0).clamp(min=1e-9)
    bins = doubling(len(kl_T))
    x = tuple((begin + 1 + stop) / 2 for begin, stop in bins)
    y = tuple(float(kl_T[begin:stop].mean()) for begin, stop in bins)
    return Figure(
        "intervene-fork",
        "How long one token makes a difference",
        "line",
        Axis("tokens since the two copies read a different token", "log", "whole", base=2),
        Axis("KL divergence of their predictions, nats", "log"),
        (Series("two forks of one state", x, y),),
        "A state is forked, one copy reads another token, then both read the same text.",
        f"The divergence goes from {rough(y[0])} to {rough(y[-1])} nats.",
    )
