"""The pictures of interventions.

P moments (cuts), T tokens after each.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from torch import Tensor

from statewise.display import rough
from statewise.figures import Axis, Figure, Series
from statewise.inspection.intervene.address import Address
from statewise.inspection.intervene.measure import WORDS, Deed
from statewise.inspection.lens import short_names

_ROWS = 16
_ROOM = 18  # letters beside a picture


def with_error(one_P: Tensor) -> tuple[float, float, float]:
    """Mean, and two standard errors below and above it."""
    mean, error = float(one_P.mean()), 2 * float(one_P.std()) / len(one_P) ** 0.5
    return mean, mean - error, mean + error


def places_figure(
    effects: Mapping[Deed, Tensor], base_PT: Tensor, *, unit: str = "nats a token", of: str = "the state"
) -> Figure:
    names = list(dict.fromkeys(str(deed.address) for deed in effects))
    acts = list(dict.fromkeys(deed.act for deed in effects))
    series = []
    for act in acts:
        chosen = {str(deed.address): with_error(one_PT.mean(1)) for deed, one_PT in effects.items() if deed.act == act}
        means, lows, highs = zip(*chosen.values())
        rows = tuple(float(names.index(name)) for name in chosen)
        series.append(Series(WORDS[act], means, rows, lows, highs))
    worst = max(effects, key=lambda deed: float(effects[deed].mean()))
    return Figure(
        "intervene-places",
        f"What each part of {of} is worth",
        "dots",
        Axis(f"added loss, {unit}"),
        Axis("", "category", categories=tuple(short_names(names) if max(map(len, names)) > _ROOM else names)),
        tuple(series),
        "Further right: the more it costs after the act; a bar is two standard errors over moments.",
        f"Most is added by {worst.address} {WORDS[worst.act]}: {rough(float(effects[worst].mean()))} {unit}, to the "
        f"{rough(float(base_PT.mean()))} that it costs untouched.",
    )


def doubling(length: int) -> list[tuple[int, int]]:
    """1, 2, 3 – 4, 5 – 8, …: stretches that grow, as the effect fades."""
    edges = [0, 1]
    while edges[-1] < length:
        edges.append(min(2 * edges[-1], length))
    return list(pairwise(edges))


def recovery_figure(effects: Mapping[Deed, Tensor], address: Address) -> Figure:
    chosen = {deed: one_PT for deed, one_PT in effects.items() if deed.address == address}
    series, last = [], {}
    for deed, one_PT in chosen.items():
        bins = [with_error(one_PT[:, begin:stop].mean(1)) for begin, stop in doubling(one_PT.shape[1])]
        x = tuple((begin + 1 + stop) / 2 for begin, stop in doubling(one_PT.shape[1]))
        means, lows, highs = zip(*bins)
        series.append(Series(WORDS[deed.act], x, means, lows, highs))
        last[deed] = means[-1]
    worst = max(last, key=lambda deed: last[deed])
    return Figure(
        "intervene-recovery",
        f"How long it is felt: {address}",
        "line",
        Axis("tokens since the act", "log", "whole", base=2),
        Axis("added loss, nats a token"),
        tuple(series),
        "Where a curve comes back to 0, the model has read enough since to do without what was touched.",
        f"In the last stretch, {address} {WORDS[worst.act]} adds {rough(last[worst])} nats a token.",
    )


def units_figure(by_unit: Mapping[Address, Tensor], *, unit: str = "nats a token") -> Figure:
    ranked: Sequence[Address] = sorted(by_unit, key=lambda address: -float(by_unit[address].mean()))
    mean = {address: float(one_P.mean()) for address, one_P in by_unit.items()}
    top = ranked[:_ROWS]
    total = sum(max(value, 0.0) for value in mean.values())
    part = sum(max(mean[address], 0.0) for address in ranked[: max(1, len(ranked) // 10)])
    leaf = ranked[0].path
    return Figure(
        "intervene-units",
        f"The units of {leaf} that are missed most",
        "bars",
        Axis(f"added loss, {unit}"),
        Axis("", "category", categories=tuple(f"{one.axis} = {one.number}" for one in top)),
        (Series("set to 0", tuple(mean[address] for address in top), tuple(float(at) for at in range(len(top)))),),
        "Each bar is one unit (or head) of it, set to 0 on its own, at every moment in turn.",
        f"A tenth of {len(ranked)} units carries {part / total:.0%} of all that single units cost."
        if total > 0
        else "No unit costs anything on its own.",
    )


def forked_figure(forked_PT: Tensor) -> Figure:
    kl_T = forked_PT.mean(0).clamp(min=1e-9)
    bins = doubling(len(kl_T))
    x = tuple((begin + 1 + stop) / 2 for begin, stop in bins)
    y = tuple(float(kl_T[begin:stop].mean()) for begin, stop in bins)
    return Figure(
        "intervene-fork",
        "How long one token makes a difference",
        "line",
        Axis("tokens since the two read something different", "log", "whole", base=2),
        Axis("difference of what they expect (KL), nats", "log"),
        (Series("two forks of one state", x, y),),
        "A state is forked, one of the two reads another token, then both read the same text.",
        f"The difference goes from {rough(y[0])} to {rough(y[-1])} nats.",
    )
