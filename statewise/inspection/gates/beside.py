"""Units beside what they follow, where that is a curve and no text.

T places, U units.
"""

from collections.abc import Mapping, Sequence

from statewise.display import rough
from statewise.figures import Axis, Drawing, Figure, Series
from statewise.inspection.gates.correlation import Follower
from statewise.inspection.gates.drawing import standard
from statewise.inspection.gates.trace import Observed, Units
from statewise.inspection.gates.walk import Walk

_SHOWN = 400  # places of a curve


def beside(
    walk: Walk, kept: Mapping[str, Units], followers: Sequence[Follower], places: Mapping[str, Observed], *, units: int
) -> list[Drawing]:
    """The best unit of each of the best followed features, over the first row."""
    best = {one.feature: one for one in reversed(followers)}
    length = min(walk.first, _SHOWN)
    found: list[Drawing] = []
    for at, one in enumerate(sorted(best.values(), key=lambda one: -abs(one.r))[:units]):
        unit_T = standard(kept[one.name][:length, one.unit])
        feature_T = standard(walk.features[one.feature][:length])
        place = places[one.name].place(one.unit)
        x = tuple(float(t) for t in range(length))
        sign = "" if one.r > 0 else ", upside down"
        found.append(
            Figure(
                f"gates-unit-{at + 1}",
                f"A unit for: {one.feature}",
                "line",
                Axis(f"{walk.place} of the first row", unit="whole"),
                Axis("spreads from the mean of this row"),
                (
                    Series(one.feature, x, tuple(map(float, feature_T))),
                    Series(f"{place}{sign}", x, tuple(float(value) * (1 if one.r > 0 else -1) for value in unit_T)),
                ),
                "Both are brought to one mean and spread; where they go together, the unit tells the feature.",
                f"{place} follows {one.feature!r} with r = {one.r:+.2f} over all rows, {rough(one.ratio)} times what "
                "the best unit usually has by chance.",
            )
        )
    return found
