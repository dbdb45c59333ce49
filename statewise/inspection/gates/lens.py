"""The lens `gates`: saturation of gates, and units that follow a feature of the text.

T time, U units.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from statewise.display import Progress, plain, rough, share, whole
from statewise.figures import Column, Drawing, table_of
from statewise.inspection.finding import Finding, Named
from statewise.inspection.gates.feature import parse_features
from statewise.inspection.gates.picture import overview, passages, saturation_figure, unit_curves, unit_map, updates
from statewise.inspection.gates.statistics import Correlation, Follower, Saturating, Saturation
from statewise.inspection.gates.trace import Observed, Trace, Units, trace_rows, trace_text, twins
from statewise.inspection.lens import Lens
from statewise.inspection.subject import Subject
from statewise.specs import Spec
from statewise.tasks import TextSpecimens

_KEPT = 1500  # tokens whose values are kept for figures


class GatesSettings(Spec):
    tokens: int = Field(4000, ge=16, description="tokens, words, time steps or nodes that are read")
    names: str = Field("*", description="which observed names are used: a pattern, for example *forget_gate")
    features: tuple[str, ...] = Field((), description="features of your own, each NAME=REGEX")
    units: int = Field(4, ge=0, description="units that are shown on what was read")
    shown: int = Field(500, ge=16, le=_KEPT, description="tokens that they are shown on")
    slides: int = Field(99, ge=19, le=999, description="random shifts of each feature, to measure chance correlations")


class _Seen(NamedTuple):
    """The statistics of one pass."""

    correlation: Correlation
    saturation: dict[str, Saturation]
    kept: dict[str, Units]  # the beginning
    mean: dict[str, NDArray[np.float64]]  # [T], over the units of a name that is also measured after an update


def apply(subject: Subject, settings: GatesSettings, progress: Progress) -> Finding:
    own = parse_features(settings.features)
    specimens, names = subject.specimens, settings.names
    assert specimens is not None
    if isinstance(specimens, TextSpecimens):
        traces = [trace_text(specimens, names, own, tokens=settings.tokens, progress=progress)]
    else:
        traces = trace_rows(specimens, names, own, places=settings.tokens, progress=progress)
    by_part = [(trace.part, _along(trace, subject, settings)) for trace in traces]
    return by_part[0][1] if not by_part[0][0] else _together(by_part)


def _together(by_part: Sequence[tuple[str, Finding]]) -> Finding:
    """Findings about the parts of a row as one; names and titles say which part."""
    first = by_part[0][1]
    return first._replace(
        sentences=tuple(
            f"Along the {part}: {said[0].lower()}{said[1:]}" for part, finding in by_part for said in finding.sentences
        ),
        figures=tuple(
            figure._replace(name=_of_part(figure.name, part), title=f"{figure.title} (along the {part})")
            for part, finding in by_part
            for figure in finding.figures
        ),
        tables=tuple(
            table._replace(name=_of_part(table.name, part), title=f"{table.title} (along the {part})")
            for part, finding in by_part
            for table in finding.tables
        ),
        data={part: finding.data for part, finding in by_part},
        missing=tuple(dict.fromkeys(said for _, finding in by_part for said in finding.missing)),
    )


def _of_part(name: str, part: str) -> str:
    return name.replace("gates-", f"gates-{part}-", 1)


def _along(trace: Trace, subject: Subject, settings: GatesSettings) -> Finding:
    missing = list(trace.missing)
    seen = _read(trace, settings)
    if seen.correlation.constant:
        missing.append(f"features that never change here: {', '.join(seen.correlation.constant)}")
    followers = seen.correlation.followers()
    places = {place.name: place for place in trace.observed}
    figures: list[Drawing] = [overview(seen.correlation, trace.observed)]
    pieces = trace.pieces[: settings.shown]
    if trace.text:
        figures += passages(pieces, seen.kept, followers, places, units=settings.units)
    else:
        figures += unit_curves(trace, seen.kept, followers, places, units=settings.units)
    figures += unit_map(pieces, seen.kept, followers, places, place=trace.place)
    figures += saturation_figure(seen.saturation)
    figures += updates(seen.mean)
    return Finding(
        "gates",
        "Gates, cells and units",
        subject.name,
        tuple(_sentences(seen, followers, places)),
        tuple(figures),
        tuple(_tables(seen, followers, places)),
        {
            "tokens": len(trace.pieces),
            "followers": [
                {**follower._asdict(), "place": places[follower.name].place(follower.unit)} for follower in followers
            ],
            "saturation": {name: _record(gate) for name, gate in seen.saturation.items()},
            "updates": {
                name: {"before": float(seen.mean[name].mean()), "after": float(seen.mean[after].mean())}
                for name, after in twins(list(seen.mean))
            },
        },
        tuple(missing),
    )


def _read(trace: Trace, settings: GatesSettings) -> _Seen:
    names = [place.name for place in trace.observed]
    correlation = Correlation(dict(trace.features), slides=settings.slides)
    saturating = {name: Saturating() for name in names}
    kept: dict[str, list[Units]] = {name: [] for name in names}
    paired = {name for pair in twins(names) for name in pair}
    mean: dict[str, list[NDArray[np.float64]]] = {name: [] for name in names if name in paired}
    for begin, chunk in trace.chunks:
        for name, unit_TU in chunk.items():
            correlation.add(name, begin, unit_TU)
            saturating[name].add(unit_TU)
            if begin < _KEPT:
                kept[name].append(unit_TU[: _KEPT - begin])
            if name in mean:
                mean[name].append(unit_TU.mean(1, dtype=np.float64))
    return _Seen(
        correlation,
        {name: saturation for name, each in saturating.items() if (saturation := each.found()) is not None},
        {name: np.concatenate(parts) for name, parts in kept.items()},
        {name: np.concatenate(parts) for name, parts in mean.items()},
    )


def _record(gate: Saturation) -> dict[str, float]:
    return {
        "mean": float(gate.mean_U.mean()),
        "at_low": float(gate.at_low_U.mean()),
        "at_high": float(gate.at_high_U.mean()),
        "units": len(gate.mean_U),
        "stuck": gate.stuck,
    }


def _sentences(seen: _Seen, followers: Sequence[Follower], places: Mapping[str, Observed]) -> list[str]:
    best = {follower.feature: follower for follower in reversed(followers)}
    tried = len(seen.correlation.features)
    ranked = sorted(best.values(), key=lambda follower: -abs(follower.r))
    named = "; ".join(
        f"{follower.feature}: {places[follower.name].place(follower.unit)}, r = {follower.r:+.2f}"
        for follower in ranked[:4]
    )
    said = [
        f"{len(best)} of {tried} features {'has' if len(best) == 1 else 'have'} a unit that follows "
        f"{'it' if len(best) == 1 else 'them'} significantly ({named})."
        if best
        else f"None of {tried} features has a unit that follows it significantly."
    ]
    gates = {name: gate for name, gate in seen.saturation.items() if gate.is_gate}
    if gates:
        units = sum(len(gate.mean_U) for gate in gates.values())
        stuck = sum(gate.stuck for gate in gates.values())
        at_end = sum(float((gate.at_low_U + gate.at_high_U).sum()) for gate in gates.values()) / units
        said.append(
            f"Gates are within a tenth of 0 or 1 for {share(at_end)} of the time; "
            f"{stuck} of {units} gate units are stuck at one end."
        )
    for name, after in twins(list(seen.mean)):
        before, later = float(seen.mean[name].mean()), float(seen.mean[after].mean())
        word = "falls" if later < before else "rises"
        said.append(f"At an update {name} {word} from {plain(before)} to {plain(later)} in the mean.")
    return said


def _tables(seen: _Seen, followers: Sequence[Follower], places: Mapping[str, Observed]) -> list[Named]:
    follow = table_of(
        followers,
        (Column("feature", "feature", text=True), lambda follower: follower.feature, None),
        (Column("unit", "unit", text=True), lambda follower: places[follower.name].place(follower.unit), None),
        (Column("r", "r"), lambda follower: follower.r, plain),
        (Column("ratio", "times chance"), lambda follower: follower.ratio, rough),
        (Column("p", "p"), lambda follower: follower.p, rough),
    )
    saturated = table_of(
        seen.saturation.items(),
        (Column("name", "name", text=True), lambda item: item[0], None),
        (Column("units", "units"), lambda item: len(item[1].mean_U), whole),
        (Column("mean", "mean"), lambda item: float(item[1].mean_U.mean()), plain),
        (Column("low", "near its low end"), lambda item: float(item[1].at_low_U.mean()), share),
        (Column("high", "near its high end"), lambda item: float(item[1].at_high_U.mean()), share),
        (Column("stuck", "units stuck"), lambda item: item[1].stuck, whole),
    )
    tables = []
    if followers:
        tables.append(
            Named(
                "gates-followers",
                "Units that follow a feature",
                "p is how often a randomly shifted feature does as well, with any unit and feature: it accounts for "
                "all that were tried.",
                follow,
            )
        )
    if seen.saturation:
        tables.append(
            Named(
                "gates-ends",
                "Saturation",
                "Ends are 0 and 1, or -1 and 1 for values that can be negative; near is within a tenth of the range. A "
                "stuck unit is at one end more than 95 % of the time.",
                saturated,
            )
        )
    return tables


LENS = Lens(
    "gates",
    "What gates, cells and units do along what is read, and which of them stand for something in it.",
    quick=True,
    settings=GatesSettings,
    apply=apply,
)
