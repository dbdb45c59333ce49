"""Scores and what they cost: the figure that carries the lesson, scores against size, speed, growth with context."""

from collections.abc import Callable, Mapping
from statistics import fmean

from statewise.comparison.report.results import SAME, Results, differ, pareto, possible
from statewise.comparison.report.verdict import compares_sizes, few, listed, named, separates_forms
from statewise.comparison.statistics import Ranking, Standing
from statewise.comparison.trial import COSTS, Found
from statewise.display import Format, count, duration, plain, size
from statewise.figures import FORMATS, Axis, Figure, Series, Unit
from statewise.tasks import metric_of

_ROOM = 0.5  # beside the entries, for trivial predictors: as a share of their range


def lesson(results: Results, ranking: Ranking) -> Figure:
    """The one figure that answers the study's question."""
    if results.study.metric in COSTS:
        by_context = {figure.name: figure for figure in contexts(results)}
        own = "state-by-context" if results.study.metric == "state_bytes" else "time-by-context"
        if figure := by_context.get(results.figure_name(own)):
            return figure
    if results.share:
        return bars(results, ranking)
    if compares_sizes(results):
        return against_model_bytes(results, ranking)
    return standings(results, ranking)


# -------------------------------------------------------------------- scores


def bars(results: Results, ranking: Ranking) -> Figure:
    """Shares of right answers, a bar per entry with what its state is and its bytes; trivial predictors last."""
    context = results.stated_context()
    several = any(standing.t_interval is not None for standing in ranking.standings)
    series = []
    for at, standing in enumerate(ranking.standings):
        low, high = _interval(results, standing)
        state = results.state_bytes(standing.entry)
        form = results.form(standing.entry) if standing.entry in results.kinds else ""
        note = ", ".join(filter(None, [form, size(state) if state else ""]))
        series.append(
            Series(
                standing.entry,
                (standing.mean,),
                (float(at),),
                (low,) if several else (),
                (high,) if several else (),
                entry=standing.entry,
                text=(f"{standing.mean:.2f}{f' · {note}' if note else ''}",),
            )
        )
    anchors = [
        Series(name, (value,), (float(len(series) + at),), text=(f"{value:.2f}",))
        for at, (name, value) in enumerate(results.anchors.items())
    ]
    forms = separates_forms(results, ranking)
    metric = f"{results.metric[:1].upper()}{results.metric[1:]}"
    after = f" and bytes of state after {context:,} tokens" if context else ""
    return Figure(
        name=results.figure_name("scores"),
        title=f"{metric} by kind of state" if forms else f"{metric} of each entry",
        kind="bars",
        x=Axis(results.metric, limits=(0.0, 1.0)),
        y=Axis(
            "", scale="category", categories=(*(standing.entry for standing in ranking.standings), *results.anchors)
        ),
        series=(*series, *anchors) if series else (),
        reading=f"Longer is better; beside each bar: {results.metric}{', what the state is' if forms else ''}{after}"
        f"{'; lines: 95 % interval over seeds' if several else ''}"
        f"{'; last rows: trivial predictors' if anchors else ''}.",
        finding=_range(results, ranking, lambda score: f"{score:.2f}"),
    )


def _range(results: Results, ranking: Ranking, form: Format) -> str:
    """The best and the worst entry, and the trivial predictors."""
    if not ranking.standings:
        return "No entry has finished."
    first, last = ranking.standings[0], ranking.standings[-1]
    if first is last:
        ends = f"Only {named(first.entry)} has finished ({form(first.mean)})"
    else:
        ends = f"From {named(first.entry)} ({form(first.mean)}) to {named(last.entry)} ({form(last.mean)})"
    anchors = [f"{name} ({form(value)})" for name, value in results.anchors.items()]
    return f"{ends}{f'; trivial predictors: {listed(anchors)}' if anchors else ''}."


def standings(results: Results, ranking: Ranking) -> Figure:
    """Every entry with its interval and its seeds, the best at the top; trivial predictors below."""
    known = ranking.standings
    series = []
    for at, standing in enumerate(known):
        low, high = _interval(results, standing)
        bounded = standing.t_interval is not None
        point = Series(standing.entry, (standing.mean,), (float(at),), entry=standing.entry)
        series.append(point._replace(low=(low,), high=(high,)) if bounded else point)
        if results.several:
            rows = (float(at),) * len(standing.figures)
            series.append(
                Series(f"{standing.entry}, each seed", standing.figures, rows, entry=standing.entry, small=True)
            )
    near, far = _near_and_far(results)
    series += [Series(name, (value,), (float(len(known) + at),)) for at, (name, value) in enumerate(near.items())]
    spread = "; bars: 95 % interval of the mean over seeds; small marks: seeds" if results.several else ""
    trivial = "; last rows: trivial predictors" if near else ""
    return Figure(
        name=results.figure_name("standings"),
        title=f"{results.metric[:1].upper()}{results.metric[1:]} of each entry",
        kind="dots",
        x=Axis(results.metric, scale=results.scale),
        y=Axis("", scale="category", categories=(*(standing.entry for standing in known), *near)),
        series=tuple(series) if known else (),
        reading=f"Best at the top, {results.study.better} is better{spread}{trivial}.",
        finding=_range(results, ranking, plain),
        missing=(f"Outside the axis: {far}.",) if far else (),
    )


def by_number(results: Results, ranking: Ranking) -> list[Figure]:
    """A line per entry, for other metrics of the study that are tables by a number, such as accuracy by distance."""
    return [_by_number(results, ranking, *item) for item in results.also().items() if len(item[1]) > 1]


def _by_number(results: Results, ranking: Ranking, table: str, names: list[str]) -> Figure:
    metric, what = metric_of(table).label.split(", ")
    places = [int(name.rpartition(".")[2]) for name in names]
    series = []
    for entry in (standing.entry for standing in ranking.standings):
        runs = [[run.figures[name] for run in results.final[entry] if name in run.figures] for name in names]
        there = [(float(place), values) for place, values in zip(places, runs) if values]
        means, low, high = ([of(values) for _, values in there] for of in (fmean, min, max))
        x = tuple(place for place, _ in there)
        series.append(Series(entry, x, tuple(means), tuple(low), tuple(high), entry=entry))
    ends = {curve.name: curve.y[-1] for curve in series if curve.x and curve.x[-1] == places[-1]}
    ordered = sorted(ends, key=lambda name: ends[name], reverse=metric_of(table).better == "higher")
    best, worst = ordered[0], ordered[-1]
    equal = [name for name in ordered if ends[name] == ends[best]]
    return Figure(
        name=results.figure_name(table.replace("_", "-")),
        title=f"{metric[:1].upper()}{metric[1:]} against {what}",
        kind="line",
        x=Axis(what, scale="log", base=2, unit="whole"),
        y=Axis(metric, limits=(0.0, 1.0) if metric_of(table).share else None),
        series=tuple(series),
        reading=f"Mean over seeds, band: lowest to highest seed; {metric_of(table).better} is better.",
        finding=f"At {what} {places[-1]}: {plain(ends[best])} for {listed(few(equal))}"
        + (f", {plain(ends[worst])} for {named(worst)}." if worst not in equal else "."),
    )


def _near_and_far(results: Results) -> tuple[dict[str, float], str]:
    """Trivial predictors that fit on the axis without squeezing the entries, and the rest in words."""
    seen = [value for name in results.done for value in results.scores(name)]
    lowest, highest = min(seen, default=0.0), max(seen, default=0.0)
    room = _ROOM * (highest - lowest)
    near = {name: value for name, value in results.anchors.items() if lowest - room <= value <= highest + room}
    far = [f"{name} ({plain(value)})" for name, value in results.anchors.items() if name not in near]
    return near, ", ".join(far)


def _interval(results: Results, standing: Standing) -> tuple[float, float]:
    """Of the mean, clipped to possible scores; on a logarithmic axis at least as high as the lowest seed."""
    low, high = standing.t_interval or (standing.mean, standing.mean)
    if results.scale == "log" and low <= 0:
        low = min(standing.figures)
    return possible(results.study.metric, low), possible(results.study.metric, high)


# -------------------------------------------------------------------- scores against size


def against_model_bytes(results: Results, ranking: Ranking) -> Figure:
    return _against(
        results,
        ranking,
        name="model",
        what="model size",
        label="everything needed to predict (bytes)",
        of=results.model_bytes,
    )


def tradeoffs(results: Results, ranking: Ranking) -> list[Figure]:
    """Scores against parameters, model bytes and state, each only where the entries differ in it."""
    context = results.stated_context()
    figures = [
        _against(
            results,
            ranking,
            name="state",
            what="state size",
            label=f"state after {context or 0:,} tokens (bytes)",
            of=results.state_bytes,
        ),
        against_model_bytes(results, ranking),
        _against(
            results,
            ranking,
            name="parameters",
            what="parameters",
            label="parameters",
            unit="count",
            of=lambda name: results.mean(name, lambda run: float(run.parameters)) or None,
        ),
    ]
    return [figure for figure in figures if differ([series.x[0] for series in figure.series])]


def _against(
    results: Results,
    ranking: Ranking,
    *,
    name: str,
    what: str,
    label: str,
    of: Callable[[str], float | None],
    unit: Unit = "bytes",
) -> Figure:
    series, without = [], []
    for standing in ranking.standings:
        x = of(standing.entry)
        if not x:
            without.append(standing.entry)
            continue
        low, high = _interval(results, standing)
        point = Series(standing.entry, (x,), (standing.mean,), entry=standing.entry)
        series.append(point if standing.t_interval is None else point._replace(low=(low,), high=(high,)))
    down = "Lower left" if results.study.better == "lower" else "Upper left"
    return Figure(
        name=results.figure_name(f"quality-{name}"),
        title=f"{results.metric[:1].upper()}{results.metric[1:]} against {what}",
        kind="points",
        x=Axis(label, scale="log", unit=unit, base=2 if unit == "bytes" else 10),
        y=Axis(results.metric, scale=results.scale),
        series=tuple(series),
        reading=f"{down} is better; the horizontal axis is logarithmic"
        f"{'; bars: 95 % interval over seeds' if results.several else ''}.",
        finding=_front(results, series, what, unit),
        missing=(f"Without {what}: {listed(few(without))}.",) if without else (),
        joined=tuple(_chains(results)),
    )


def _chains(results: Results) -> list[tuple[str, ...]]:
    """Markov models of rising order, which a line connects."""
    chain = [name for name in results.done if results.kinds.get(name) == "markov"]
    return [tuple(chain)] if len(chain) > 1 else []


def _front(results: Results, series: list[Series], what: str, unit: Unit) -> str:
    if not series:
        return f"No entry has a known {what}."
    form = FORMATS[unit]
    if len(series) == 1:
        return f"Only {named(series[0].name)} has a known {what}: {form(series[0].x[0])}."
    sizes = {curve.name: curve.x[0] for curve in series}
    names = pareto({curve.name: (curve.x[0], curve.y[0]) for curve in series}, results.study.better)
    unmatched = [named(name) for name in names if name in results.unmatched]
    note = f" Not size-matched: {listed(unmatched)}." if unmatched else ""
    return f"Pareto-optimal: {listed([f'{named(name)} ({form(sizes[name])})' for name in names])}.{note}"


# -------------------------------------------------------------------- speed


def throughput(results: Results) -> Figure:
    """Training and decoding speed, a row per entry."""
    columns: dict[str, Callable[[Found], float | None]] = {
        "training": lambda run: run.tokens_per_second,
        "decoding one text": lambda run: run.decode_tokens_per_second,
    }
    order, series, missing, said = results.done, [], [], []
    for column, of in columns.items():
        known = {entry: value for entry in order if (value := results.mean(entry, of))}
        if not known:
            continue
        if without := [entry for entry in order if entry not in known]:
            missing.append(f"Not measured for {column}: {listed(few(without))}.")
        rows = tuple(float(order.index(entry)) for entry in known)
        series.append(Series(column, tuple(known.values()), rows))
        top, bottom = max(known, key=known.__getitem__), min(known, key=known.__getitem__)
        said.append(
            f"{column}: {named(top)} is fastest ({count(known[top])} tokens per second), "
            f"{named(bottom)} slowest ({count(known[bottom])})"
        )
    finding = "; ".join(said)
    return Figure(
        name=results.figure_name("throughput"),
        title="Speed",
        kind="dots",
        x=Axis("tokens per second", scale="log", unit="count"),
        y=Axis("", scale="category", categories=tuple(order)),
        series=tuple(series),
        reading="Right is faster. Training reads whole batches; decoding generates one token after another.",
        finding=f"{finding[:1].upper()}{finding[1:]}." if finding else "Nothing was measured.",
        missing=tuple(missing),
    )


# -------------------------------------------------------------------- growth with the context


def contexts(results: Results) -> list[Figure]:
    """State, time per token and memory of training by the length of the context, where they were measured."""
    figures = [
        _by_context(
            results,
            name="state-by-context",
            title="State against context",
            label="state of one sequence (bytes)",
            unit="bytes",
            of=lambda result: {context: float(value) for context, value in result.state_bytes.items()},
            reading="Flat: fixed-size state. Rising: the state is a list that grows with every token.",
        ),
        _by_context(
            results,
            name="time-by-context",
            title="Time per token against context",
            label="time for one more token",
            unit="seconds",
            of=lambda result: result.seconds_by_context,
            reading="Flat: the next token takes as long after a long text as after a short one.",
        ),
        _by_context(
            results,
            name="training-by-context",
            title="Training memory against context",
            label="kept for the backward pass of one sequence (bytes)",
            unit="bytes",
            of=lambda result: result.training_bytes,
            reading="Lines of slope 1: twice the context, twice the memory.",
        ),
    ]
    return [figure for figure in figures if any(len(series.x) > 1 for series in figure.series) and _varies(figure)]


def _varies(figure: Figure) -> bool:
    """Whether any value differs: entries of one model have the same state at every length."""
    values = [value for series in figure.series for value in series.y]
    return max(values) > SAME * min(values)


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
        tables = [table for run in results.final[entry] if (table := of(run))]
        places = sorted(set.intersection(*(set(table) for table in tables))) if tables else []
        means = [sum(table[place] for table in tables) / len(tables) for place in places]
        kept = [(float(place), mean) for place, mean in zip(places, means) if mean > 0]
        if kept:
            series.append(Series(entry, tuple(x for x, _ in kept), tuple(y for _, y in kept), entry=entry))
        else:
            missing.append(entry)
    return Figure(
        name=results.figure_name(name),
        title=title,
        kind="line",
        x=Axis("context (tokens)", scale="log", unit="whole", base=4),
        y=Axis(label, scale="log", unit=unit, base=2 if unit == "bytes" else 10),
        series=tuple(series),
        reading=f"{reading} Both axes are logarithmic.",
        finding=_growth(series, size if unit == "bytes" else duration, noise=1.0 if unit == "bytes" else 2.0),
        missing=(f"Not measured: {listed(few(missing))}.",) if missing else (),
    )


def _growth(series: list[Series], form: Callable[[float], str], *, noise: float) -> str:
    """Entries that grow and entries that stay flat. Times vary between runs: growth must exceed the factor `noise`."""
    if not series:
        return ""
    last = max(curve.x[-1] for curve in series)
    growing = [curve for curve in series if curve.y[-1] > noise * curve.y[0]]
    flat = [curve for curve in series if curve not in growing]
    said = []
    if growing:
        factors = [f"{named(curve.name)} (× {count(curve.y[-1] / curve.y[0])})" for curve in growing]
        said.append(f"{listed(factors)} {'grows' if len(growing) == 1 else 'grow'}")
    if flat:
        ends = [curve.y[-1] for curve in flat]
        span = form(min(ends)) if min(ends) == max(ends) else f"{form(min(ends))} to {form(max(ends))}"
        whose = "all" if not growing else "the other" if len(flat) == 1 else f"the other {len(flat)}"
        said.append(f"{whose} {'stays' if len(flat) == 1 else 'stay'} flat at {span}")
    return f"Up to {last:,.0f} tokens, {'; '.join(said)}."
