"""What quality costs: against parameters and state, in speed, in memory, and as the context grows."""

from collections.abc import Callable, Mapping

from statewise.comparison.report.results import Results, possible
from statewise.comparison.statistics import Standing
from statewise.comparison.trial import Found
from statewise.figures.figure import FORMATS, Axis, Figure, Kind, Series, Unit
from statewise.figures.number import count, duration, plain, rough, share, size

_ROOM = 0.5  # beside the entries, for what hardly learns: as a share of their width


def standings(results: Results, standing: Mapping[str, Standing]) -> Figure:
    """Every entry with its interval and its seeds, the best at the top; below them what hardly learns at all."""
    lower = results.study.better == "lower"
    order = sorted(results.done, key=lambda name: standing[name].mean, reverse=not lower)
    rows = tuple(float(at) for at in range(len(order)))
    known = [standing[name] for name in order]
    means = Series(
        name="mean and interval" if results.several else "its figure",
        x=tuple(one.mean for one in known),
        y=rows,
        low=tuple(_interval(results, one)[0] for one in known) if results.several else (),
        high=tuple(_interval(results, one)[1] for one in known) if results.several else (),
    )
    seeds = [(value, float(at)) for at, name in enumerate(order) for value in results.figures(name)]
    each = Series(name="each seed", x=tuple(x for x, _ in seeds), y=tuple(y for _, y in seeds), small=True)
    anchors, far = _near_and_far(results)
    spread = "; bars are intervals of 95 % for the mean over seeds, small marks the seeds themselves"
    spread = spread if results.several else ""
    little = Series(
        name="next to nothing learned",
        x=tuple(anchors.values()),
        y=tuple(float(len(order) + at) for at in range(len(anchors))),
    )
    if order:
        first, last = order[0], order[-1]
        ends = f"From {first} ({plain(known[0].mean)}) to {last} ({plain(known[-1].mean)})"
        width = abs(known[-1].mean - known[0].mean)
        alone = f"{first} stands alone, at {plain(known[0].mean)}."
        finding = f"{ends}, the entries lie {rough(width)} {results.metric} apart." if len(order) > 1 else alone
    else:
        finding = "No entry has finished."
    return Figure(
        name="standings",
        title=f"{results.metric[:1].upper()}{results.metric[1:]} of each entry",
        kind="dots",
        x=Axis(results.metric, scale=results.scale),
        y=Axis("", scale="category", categories=(*order, *anchors)),
        series=(means, *([each] if results.several else []), *([little] if anchors else [])) if order else (),
        reading=f"A row is an entry, the best at the top ({results.study.better} is better){spread}"
        f"{'; the last rows are what one gets without a model worth the name' if anchors else ''}.",
        finding=finding,
        missing=(f"Not drawn, since they lie far off: {far}.",) if far else (),
    )


def _near_and_far(results: Results) -> tuple[dict[str, float], str]:
    """What hardly learns, as far as it can be drawn without pressing the entries together; and the rest, in words."""
    seen = [value for name in results.done for value in results.figures(name)]
    room = _ROOM * (max(seen, default=0.0) - min(seen, default=0.0))
    near = {
        name: value
        for name, value in results.anchors.items()
        if min(seen, default=0.0) - room <= value <= max(seen, default=0.0) + room
    }
    far = [f"{name} ({plain(value)})" for name, value in results.anchors.items() if name not in near]
    return near, ", ".join(far)


def _interval(results: Results, one: Standing) -> tuple[float, float]:
    """For the mean, as far as there is such a figure; on a logarithm, as far as the seeds go below it."""
    low, high = one.t_interval or (one.mean, one.mean)
    if results.scale == "log" and low <= 0:
        low = min(one.figures)
    return possible(results.study.metric, low), possible(results.study.metric, high)


def quality(results: Results, standing: Mapping[str, Standing]) -> list[Figure]:
    context = results.stated_context()
    figures = [
        _against(
            results,
            standing,
            name="parameters",
            label="parameters",
            unit="count",
            of=lambda one: float(one.parameters),
            reading="Down is better, left is smaller" if results.study.better == "lower" else "Up and left is better",
        )
    ]
    if context is None:
        return figures
    after = f"state after {context:,} tokens (bytes)"
    figures.append(
        _against(
            results,
            standing,
            name="state",
            label=after,
            unit="bytes",
            of=lambda one: float(one.state_bytes[context]) if context in one.state_bytes else None,
            reading="Down is better, left remembers in less"
            if results.study.better == "lower"
            else "Up and left is better",
        )
    )
    return figures


def _against(
    results: Results,
    standing: Mapping[str, Standing],
    *,
    name: str,
    label: str,
    unit: Unit,
    of: Callable[[Found], float | None],
    reading: str,
) -> Figure:
    series, missing = [], []
    what = label.partition(" (")[0]
    for entry in results.done:
        x = results.mean(entry, of)
        if x is None or x <= 0:
            missing.append(f"{entry} is not drawn: it has no {what.partition(' after')[0]} to be placed by.")
            continue
        one = standing[entry]
        low, high = _interval(results, one)
        point = Series(entry, (x,), (one.mean,), entry=entry)
        series.append(point if one.t_interval is None else point._replace(low=(low,), high=(high,)))
    return Figure(
        name=f"quality-{name}",
        title=f"{results.metric[:1].upper()}{results.metric[1:]} against {what}",
        kind="points",
        x=Axis(label, scale="log", unit=unit, base=2 if unit == "bytes" else 10),
        y=Axis(results.metric, scale=results.scale),
        series=tuple(series),
        reading=f"{reading}{'; bars are intervals of 95 % over seeds' if results.several else ''}.",
        finding=_frontier(series, what, unit, lower=results.study.better == "lower", unheld=results.unheld),
        missing=tuple(missing),
    )


def _frontier(series: list[Series], what: str, unit: Unit, *, lower: bool, unheld: frozenset[str]) -> str:
    """Who is beaten by nobody that has as little. Whoever the budget does not hold for is no measure for the others."""
    outside = [one.name for one in series if one.name in unheld]
    aside = f" {', '.join(outside)}, outside of the budget, left aside." if outside else ""
    series = [one for one in series if one.name not in unheld] or series
    if not series:
        return "No entry can be placed here."
    if len(series) == 1:
        return f"{series[0].name} stands alone, with {FORMATS[unit](series[0].x[0])}."
    sign = 1 if lower else -1
    front = [
        one
        for one in series
        if not any(
            (other.x[0], sign * other.y[0]) != (one.x[0], sign * one.y[0])
            and other.x[0] <= one.x[0]
            and sign * other.y[0] <= sign * one.y[0]
            for other in series
        )
    ]
    named = ", ".join(f"{one.name} ({FORMATS[unit](one.x[0])})" for one in sorted(front, key=lambda one: one.x[0]))
    places = [one.x[0] for one in series]
    if max(places) <= 1.05 * min(places):
        within = share(max(places) / min(places) - 1)
        return f"All have the same {what} to within {within}: what differs is the model.{aside}"
    return f"No entry is both better and smaller than these: {named}.{aside}"


def throughput(results: Results) -> Figure:
    def written(one: Found) -> float | None:
        return one.decode_tokens_per_second

    writes = any(results.mean(name, written) for name in results.done)
    beside = ", decoding writes one text, token after token" if writes else ""
    return _rows(
        results,
        name="throughput",
        title="Training and decoding speed" if writes else "Training speed",
        axis=Axis("tokens per second", scale="log", unit="count"),
        columns={"training": lambda one: one.tokens_per_second, **({"decoding, one text": written} if writes else {})},
        reading=f"A row is an entry, right is faster; training reads a whole batch at once{beside}.",
        form=count,
        word="tokens a second",
        most="fastest",
        least="slowest",
    )


def memory(results: Results) -> Figure:
    return _rows(
        results,
        name="memory",
        title="Peak memory of a trial",
        axis=Axis("peak memory (bytes)", unit="bytes"),
        columns={"peak memory": lambda one: float(one.peak_bytes)},
        reading="A row is an entry, left is less; the interpreter and its libraries are included.",
        form=size,
        word="",
        most="largest",
        least="smallest",
    )


def _rows(
    results: Results,
    *,
    name: str,
    title: str,
    axis: Axis,
    columns: Mapping[str, Callable[[Found], float | None]],
    reading: str,
    form: Callable[[float], str],
    word: str,
    most: str,
    least: str,
) -> Figure:
    order = results.done
    series, missing, said = [], [], []
    kind: Kind = "dots"
    for column, of in columns.items():
        known = {entry: value for entry in order if (value := results.mean(entry, of)) is not None and value > 0}
        without = [entry for entry in order if entry not in known]
        if without:
            missing.append(f"{column}: not measured for {', '.join(without)}.")
        if known:
            rows = tuple(float(order.index(entry)) for entry in known)
            series.append(Series(column, tuple(known.values()), rows))
            top, bottom = max(known, key=known.__getitem__), min(known, key=known.__getitem__)
            unit = f" {word}" if word else ""
            ends = f"{top} is {most} ({form(known[top])}{unit}), {bottom} {least} ({form(known[bottom])})"
            said.append(f"{column}: {ends if len(known) > 1 else f'{top} has {form(known[top])}{unit}'}")
    finding = "; ".join(said)
    return Figure(
        name=name,
        title=title,
        kind=kind,
        x=axis,
        y=Axis("", scale="category", categories=tuple(order)),
        series=tuple(series),
        reading=reading,
        finding=f"{finding[:1].upper()}{finding[1:]}." if finding else "Nothing was measured.",
        missing=tuple(missing),
    )


def contexts(results: Results) -> list[Figure]:
    """What a longer past costs, in bytes and in time, as far as either was measured."""
    found = [
        _by_context(
            results,
            name="state-by-context",
            title="State against context",
            label="state of one row (bytes)",
            unit="bytes",
            of=lambda one: {context: float(value) for context, value in one.state_bytes.items()},
            reading="Flat curves remember in the same room however long the text; rising ones keep a list of it.",
        ),
        _by_context(
            results,
            name="time-by-context",
            title="Time per token against context",
            label="one more token (seconds)",
            unit="seconds",
            of=lambda one: one.seconds_by_context,
            reading="Flat curves write the next token as fast after a long text as after a short one.",
        ),
    ]
    return [one for one in found if one.drawable]


def _by_context(
    results: Results,
    *,
    name: str,
    title: str,
    label: str,
    unit: Unit,
    of: Callable[[Found], Mapping[int, float] | None],
    reading: str,
) -> Figure:
    series, missing = [], []
    for entry in results.done:
        tables = [table for one in results.final[entry] if (table := of(one))]
        places = sorted(set.intersection(*(set(table) for table in tables))) if tables else []
        means = [sum(table[place] for table in tables) / len(tables) for place in places]
        kept = [(float(place), mean) for place, mean in zip(places, means) if mean > 0]
        if kept:
            series.append(Series(entry, tuple(x for x, _ in kept), tuple(y for _, y in kept), entry=entry))
        else:
            missing.append(entry)
    said = (f"Not measured for {', '.join(missing)}.",) if missing else ()
    return Figure(
        name=name,
        title=title,
        kind="line",
        x=Axis("context (tokens)", scale="log", unit="whole", base=4),
        y=Axis(label, scale="log", unit=unit, base=2 if unit == "bytes" else 10),
        series=tuple(series),
        reading=f"{reading} Both axes are logarithms.",
        finding=_growth(series, size if unit == "bytes" else duration, noise=1.0 if unit == "bytes" else 2.0),
        missing=said,
    )


def _growth(series: list[Series], form: Callable[[float], str], *, noise: float) -> str:
    """Times vary, so only what grows by more than `noise` counts as growing."""
    if not series:
        return ""
    last = max(one.x[-1] for one in series)
    growing = [one for one in series if one.y[-1] > noise * one.y[0]]
    flat = [one for one in series if one not in growing]
    said = []
    if growing:
        listed = ", ".join(f"{one.name} (× {count(one.y[-1] / one.y[0])})" for one in growing)
        said.append(f"{len(growing)} of {len(series)} {'grows' if len(growing) == 1 else 'grow'}: {listed}")
    if flat:
        ends = [one.y[-1] for one in flat]
        span = form(min(ends)) if min(ends) == max(ends) else f"{form(min(ends))} to {form(max(ends))}"
        said.append(f"{len(flat)} {'stays' if len(flat) == 1 else 'stay'} flat, at {span}")
    return f"Up to {last:,.0f} tokens, {'; '.join(said)}."
