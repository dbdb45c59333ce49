"""The figures, the table and the sentences of the lens `bptt`."""

from collections.abc import Mapping
from statistics import fmean

from statewise.display import duration, plain, rough, share, size, with_interval
from statewise.figures import Axis, Cell, Column, Drawing, Figure, Series, Table, Unit, number, words
from statewise.inspection.bptt.estimate import Measured
from statewise.inspection.finding import Named
from statewise.inspection.lens import half_width

_EXACT = 1e-6  # of the full gradient's norm: less is rounding


def sentences(policies: Mapping[str, Measured], length: int, place: str, *, whole_rows: bool) -> list[str]:
    fixed, unbiased = policies["fixed"], policies["unbiased"]
    full = size(policies["full"].cost.held_bytes)
    every = place if length == 1 else f"{length} {place}s"
    said = [
        f"Cutting every {every} leaves a gradient with cosine {plain(fixed.mean('cosine'))} to the full one "
        f"and {share(fixed.mean('bias'))} of it missing; the unbiased policy has an error of "
        f"{share(unbiased.mean('bias'))} after {unbiased.estimates[0].draws} draws, of which "
        f"{share(unbiased.mean('chance'))} is expected by chance.",
        f"Its variance is higher: a draw has a standard deviation of {rough(unbiased.mean('spread'))} times the norm "
        f"of the full gradient, against {rough(policies['random'].mean('spread'))} for random truncation.",
        f"Memory falls from {full} to {size(fixed.cost.held_bytes)} with fixed truncation and "
        f"{size(unbiased.cost.held_bytes)} with the unbiased policy."
        if not whole_rows
        else f"Memory is not saved, because a row is held until it is answered: {full} in full, "
        f"{size(fixed.cost.held_bytes)} with fixed truncation.",
    ]
    if fixed.trained is not None:
        said.append(f"Trained with each, {_lowest(policies)}.")
    return said


def figures(policies: Mapping[str, Measured]) -> list[Drawing]:
    cut = {name: estimate for name, estimate in policies.items() if name != "full"}
    unbiased = policies["unbiased"]
    drawn: list[Drawing] = [
        _convergence(cut),
        _closest(
            "bptt-cosine",
            "Direction",
            cut,
            "cosine",
            "cosine with the full gradient",
            "Mean cosine of a policy's gradient with the full one, with a 95 % interval over batches: 1 is the same "
            "direction.",
        ),
        _closest(
            "bptt-projection",
            "Size along the full gradient",
            cut,
            "projection",
            "component along the full gradient",
            "Component of a policy's gradient along the full one, in units of its norm: mean over draws, with a 95 % "
            "interval over batches. An unbiased policy has 1.",
        ),
        _bars("bptt-memory", "Memory", policies, {n: float(o.cost.held_bytes) for n, o in policies.items()}, "bytes"),
        _bars("bptt-time", "Time", policies, {n: o.cost.seconds for n, o in policies.items()}, "seconds"),
    ]
    if unbiased.trained is not None:
        drawn.append(_final(policies))
    return drawn


def _convergence(cut: Mapping[str, Measured]) -> Figure:
    series = []
    for name, estimate in cut.items():
        off_by = [fmean(values) for values in zip(*(each.off_by for each in estimate.estimates))]
        most = max(each.estimates[0].draws for each in cut.values())
        draws = [2.0**power for power in range(len(off_by))]
        if not estimate.random:  # the same in every draw
            draws, off_by = [1.0, float(most)], [off_by[0], off_by[0]]
        kept = [(n, value) for n, value in zip(draws, off_by) if value > 0]
        if kept:
            series.append(Series(name, tuple(x for x, _ in kept), tuple(y for _, y in kept)))
    unbiased = cut["unbiased"]
    first, last = (fmean(each.off_by[at] for each in unbiased.estimates) for at in (0, -1))
    fall = first / last if last else 1.0
    return Figure(
        "bptt-convergence",
        "Convergence of the mean over draws",
        "line",
        Axis("draws", "log", "whole", base=2),
        Axis("distance from the full gradient", "log"),
        tuple(series),
        reading="Distance between the mean of this many draws and the full gradient, in units of its norm. A biased "
        "policy levels off; an unbiased one falls as 1/√draws.",
        finding=f"From 1 to {unbiased.estimates[0].draws} draws the unbiased policy comes {rough(fall)} times closer "
        f"(1/√draws would be {rough(unbiased.estimates[0].draws ** 0.5)}); fixed cuts stay "
        f"{share(cut['fixed'].mean('bias'))} off, random ones {share(cut['random'].mean('bias'))}.",
    )


def _closest(name: str, title: str, cut: Mapping[str, Measured], field: str, label: str, reading: str) -> Figure:
    means = {policy: estimate.mean(field) for policy, estimate in cut.items()}
    halves = {policy: estimate.half(field) or 0.0 for policy, estimate in cut.items()}
    best = min(means, key=lambda policy: abs(means[policy] - 1))
    finding = f"Closest to 1 is {best}, with {_interval(means[best], halves[best])}."
    return _dots(name, title, label, label, means, halves, reading, finding)


def _dots(
    name: str,
    title: str,
    axis: str,
    label: str,
    means: Mapping[str, float],
    halves: Mapping[str, float],
    reading: str,
    finding: str,
) -> Figure:
    """A row for each policy: its mean, with an interval."""
    series = Series(
        label,
        tuple(means.values()),
        tuple(float(at) for at in range(len(means))),
        tuple(mean - halves[policy] for policy, mean in means.items()),
        tuple(mean + halves[policy] for policy, mean in means.items()),
    )
    policies = Axis("", "category", categories=tuple(means))
    return Figure(name, title, "dots", Axis(axis), policies, (series,), reading=reading, finding=finding)


def _bars(name: str, title: str, policies: Mapping[str, Measured], values: Mapping[str, float], unit: Unit) -> Figure:
    form = size if unit == "bytes" else duration
    label = "peak memory for the backward pass" if unit == "bytes" else "seconds for one gradient"
    least = min(values, key=values.__getitem__)
    return Figure(
        name,
        title,
        "bars",
        Axis(label, unit=unit),
        Axis("", "category", categories=tuple(policies)),
        (Series(title.lower(), tuple(values.values()), tuple(float(at) for at in range(len(values)))),),
        reading="Measured on one batch, forward and back.",
        finding=f"{least} takes least, {form(values[least])}"
        + ("." if least == "full" else f"; full takes {form(values['full'])}."),
    )


def _interval(mean: float, half: float | None) -> str:
    """A value that is exact but for rounding has no interval."""
    mean = mean if abs(mean) > _EXACT else 0.0
    return with_interval(mean, half if half is not None and half > _EXACT else None)


def _lowest(policies: Mapping[str, Measured]) -> str:
    """The policy with the lowest loss, and whether the difference is significant: seeds are shared, so it is paired."""
    nats = {name: estimate.trained.nats for name, estimate in policies.items() if estimate.trained is not None}
    best, next_ = sorted(nats, key=lambda name: fmean(nats[name]))[:2]
    gaps = [other - own for own, other in zip(nats[best], nats[next_])]
    half = half_width(gaps)
    words = f"{best} has the lowest loss, {plain(fmean(nats[best]))} nats"
    if half is None:
        return f"{words}, {rough(fmean(gaps))} below {next_}; one seed cannot tell whether that is significant"
    apart = "significant over seeds" if fmean(gaps) > half else "not significant over seeds"
    return f"{words}, {rough(fmean(gaps))} below {next_}, which is {apart}"


def _final(policies: Mapping[str, Measured]) -> Figure:
    nats = {name: estimate.trained.nats for name, estimate in policies.items() if estimate.trained is not None}
    means = {name: fmean(values) for name, values in nats.items()}
    halves = {name: half_width(values) or 0.0 for name, values in nats.items()}
    return _dots(
        "bptt-final",
        "Final loss with each policy",
        "nats per token on held-out text",
        "mean over seeds",
        means,
        halves,
        "The run's own recipe, trained again with each policy on the same seeds; the interval is over seeds.",
        f"{_lowest(policies).capitalize()}.",
    )


def table(policies: Mapping[str, Measured], whole: str) -> Named:
    columns = [
        Column("policy", "policy", text=True),
        Column("cosine", "cosine", "with full"),
        Column("projection", "projection", "on full"),
        Column("norm", "norm", "of full"),
        Column("bias", "bias", "of the mean, of full"),
        Column("chance", "by chance", "bias of as many draws"),
        Column("spread", "spread", "of a draw, of full"),
        Column("held_bytes", "memory", "held at most"),
        Column("seconds", "time", "a gradient"),
    ]
    trained = any(estimate.trained is not None for estimate in policies.values())
    if trained:
        columns += [Column("nats", "final loss", "nats per token"), Column("training", "training", "a run")]
    rows = []
    for name, estimate in policies.items():
        row = [words(name)]
        for field in ("cosine", "projection", "norm", "bias", "chance", "spread"):
            row.append(Cell(estimate.mean(field), _interval(estimate.mean(field), estimate.half(field))))
        row += [
            Cell(estimate.cost.held_bytes, size(estimate.cost.held_bytes)),
            Cell(estimate.cost.seconds, duration(estimate.cost.seconds)),
        ]
        if trained:
            nats = None if estimate.trained is None else fmean(estimate.trained.nats)
            row += [
                number(nats, plain),
                number(None if estimate.trained is None else estimate.trained.seconds, duration),
            ]
        rows.append(tuple(row))
    reading = f"Everything is relative to the gradient through the whole {whole}; intervals are over batches."
    return Named("bptt-policies", "The policies", reading, Table(tuple(columns), tuple(rows)))
