"""The report's tables: the entries, their settings, the search, every trial, what failed."""

import json
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from statewise.comparison.budget import UNITS, Entry
from statewise.comparison.report.results import Results
from statewise.comparison.report.verdict import has_spread, score_text
from statewise.comparison.statistics import Ranking
from statewise.comparison.trial import TRAINING_FLOPS, Found
from statewise.display import NONE, count, duration, plain, share, size, whole
from statewise.figures import Cell, Column, Table, number, table_of, words
from statewise.specs import HeldKind, Tried
from statewise.tasks import Metric, metric_of

_KEPT = ("entry", "metric", "model_bytes", "state_bytes")  # columns that are shown even where all entries agree


def entry_table(results: Results, ranking: Ranking, solved: Mapping[str, Entry]) -> Table:
    """A row per entry, best first; those without a result stand at the end. Columns without information are hidden."""
    context = results.stated_context()
    held = [kind for kind, _ in results.study.budget.held()]
    interval = f"{'mean ± 95 % interval' if results.several else 'one seed'}, {results.study.better} is better"
    also = [metric_of(name) for names in results.also().values() for name in names]
    columns = [
        Column("entry", "model", text=True),
        Column("form", "state is", text=True, minor=True),
        Column("metric", results.metric, interval),
        Column("low", "interval from", shown=False),
        Column("high", "interval to", shown=False),
        *(Column(metric.name, *_heading(metric)) for metric in also),
        Column("group", "group", "same number: statistically tied", minor=True),
        Column("parameters", "parameters", minor=True),
        Column("model_bytes", "model size", "everything needed to predict"),
        Column("state_bytes", "state", f"after {context:,} tokens" if context else ""),
        Column("path", "longest path", "between tokens N apart", text=True),
        *(Column(f"off_{kind}", "off budget", UNITS[kind], shown=False) for kind in held),
        Column("flops_per_token", "FLOPs", "per token, forward", minor=True),
        Column("tokens_per_second", "training", "tokens / s", minor=True),
        Column("decode_tokens_per_second", "decoding", "tokens / s", minor=True),
        Column("seconds", "training time", "per trial", minor=True),
        Column("steps", "steps", minor=True),
        Column("seeds", "seeds", minor=True),
        Column("peak_bytes", "peak memory", "of the process", shown=False),
    ]
    several = has_spread(ranking)
    rows: list[tuple[Cell, ...]] = []
    for standing in ranking.standings:
        name = standing.entry
        low, high = standing.t_interval or (None, None)
        form = results.form(name) if name in results.kinds else None
        rows.append(
            (
                words(name),
                Cell(form, form or NONE),
                Cell(standing.mean, score_text(standing)),
                number(low, plain),
                number(high, plain),
                *(number(results.mean(name, partial(_figure, metric.name)), plain) for metric in also),
                Cell(ranking.group(name), str(ranking.group(name))) if several else Cell(None, NONE),
                number(results.mean(name, lambda run: float(run.parameters)) or None, whole),  # count models have none
                number(results.model_bytes(name), size),
                number(results.state_bytes(name), size),
                Cell(path := results.final[name][0].path, path or NONE),
                *(number(off(results, solved, name, kind), share) for kind in held),
                number(results.mean(name, lambda run: run.flops_per_token) or None, count),
                number(results.mean(name, lambda run: run.tokens_per_second) or None, count),
                number(results.mean(name, lambda run: run.decode_tokens_per_second), count),
                number(results.mean(name, lambda run: run.seconds) or None, duration),
                number(results.mean(name, lambda run: float(run.steps)) or None, whole),
                Cell(len(standing.figures), f"{len(standing.figures)} of {results.study.seeds}"),
                number(results.mean(name, lambda run: float(run.peak_bytes)), size),
            )
        )
    for name in results.order:
        if name not in results.final:
            cells = {"entry": words(name), "metric": Cell(None, "no result")}
            cells["seeds"] = Cell(0, f"0 of {results.study.seeds}")
            rows.append(tuple(cells.get(column.name, Cell(None, NONE)) for column in columns))
    table = Table(tuple(columns), tuple(rows), best=0 if ranking.standings else None)
    return _informative(table, kept={*_KEPT, *(metric.name for metric in also)})


def _heading(metric: Metric) -> tuple[str, str]:
    """Title and unit: `accuracy`, `distance 8`."""
    title, _, unit = metric.label.partition(", ")
    return title, unit or f"{metric.better} is better"


def _figure(metric: str, run: Found) -> float | None:
    return run.figures.get(metric)


class Settings(NamedTuple):
    """What all entries share, in a sentence, and a row per entry of what differs."""

    shared: str
    table: Table | None


def settings_table(results: Results) -> Settings | None:
    """Learning rate, depth, width, order, smoothing, truncation ...: whatever the trials recorded."""
    known = {name: results.final[name][0].settings for name in results.done}
    paths = list(dict.fromkeys(path for settings in known.values() for path in settings))
    if not paths:
        return None
    same = [path for path in paths if len({json.dumps(settings.get(path)) for settings in known.values()}) == 1]
    short = _short_names(paths)
    shared = ", ".join(f"{short[path]} {_value(next(iter(known.values()))[path])}" for path in same)
    differing = [path for path in paths if path not in same]
    rows = tuple(
        (words(name), *(words(_value(settings[path]) if path in settings else NONE) for path in differing))
        for name, settings in known.items()
    )
    columns = (Column("entry", "model", text=True), *(Column(path, short[path], text=True) for path in differing))
    sentence = f"The same for all entries: {shared}." if shared else ""
    return Settings(sentence, Table(columns, rows) if differing else None)


def record_table(results: Results) -> Table | None:
    """The recorded search that chose settings before the study: a row per entry, a column per tried combination of
    values, the chosen one marked."""
    study = results.study
    if not study.record:
        return None
    short = _short_names(list(dict.fromkeys(path for trial in study.record for path in trial.settings)))
    tried = list(dict.fromkeys(_combination(trial, short) for trial in study.record))
    rows = []
    for name in dict.fromkeys(trial.entry for trial in study.record):
        trials = {_combination(trial, short): trial for trial in study.record if trial.entry == name}
        chosen = study.chosen(name)
        cells = [_tried(trials.get(setting), chosen=trials.get(setting) is chosen) for setting in tried]
        rows.append((words(name), *cells))
    titles = [Column(setting, setting, results.metric) for setting in tried]
    return Table((Column("entry", "model", text=True), *titles), tuple(rows))


def _combination(trial: Tried, short: Mapping[str, str]) -> str:
    return ", ".join(f"{short[path]} {_value(value)}" for path, value in trial.settings.items())


def _tried(trial: Tried | None, *, chosen: bool) -> Cell:
    if trial is None:
        return Cell(None, NONE)
    text = "failed" if trial.metric is None else plain(trial.metric)
    return Cell(trial.metric, f"✓ {text}" if chosen else text)


def search_table(results: Results) -> Table | None:
    """Every search trial of every entry in order; the seeds were run with the chosen one."""
    failed = [failure for failure in results.failures if failure.phase == "search"]
    if not results.search and not failed:
        return None
    rows = []
    for name in results.order:
        chosen = results.final[name][0].settings if name in results.final else None
        tries = [attempt for attempt in results.search if attempt.entry == name]
        sign = 1 if results.study.better == "lower" else -1
        best = min(
            (attempt for attempt in tries if attempt.settings == chosen),
            key=lambda run: sign * run.figures[results.study.metric],
            default=None,
        )
        for attempt in tries:
            mark = "chosen" if attempt is best else ""
            figure = attempt.figures[results.study.metric]
            rows.append((words(name), words(settings_text(attempt.settings)), Cell(figure, plain(figure)), words(mark)))
        rows += [
            (words(name), words(NONE), Cell(None, "failed"), words(failure.error))
            for failure in failed
            if failure.entry == name
        ]
    columns = (
        Column("entry", "model", text=True),
        Column("settings", "settings", text=True),
        Column("figure", results.metric, "on the seed of the search"),
        Column("note", "", text=True),
    )
    return Table(columns, tuple(rows))


def trial_table(results: Results) -> Table:
    """Every final trial, so that each number can be traced to a folder."""
    hash_ = Column("weights", "weights", "SHA-256", text=True)
    return table_of(
        [run for name in results.done for run in results.final[name]],
        (Column("entry", "model", text=True), lambda run: run.entry, None),
        (Column("seed", "seed"), lambda run: run.seed, str),
        (Column("figure", results.metric), lambda run: run.figures[results.study.metric], plain),
        (Column("settings", "settings", text=True), lambda run: settings_text(run.settings), None),
        (Column("steps", "steps"), lambda run: run.steps, whole),
        (Column("tokens", "tokens"), lambda run: run.tokens, whole),
        (Column("seconds", "training time"), lambda run: run.seconds, duration),
        (Column("key", "trial", text=True), lambda run: run.key, None),
        (hash_, lambda run: Cell(run.weights_sha256, run.weights_sha256[:16]), None),
    )


def failure_table(results: Results) -> Table | None:
    if not results.failures:
        return None
    return table_of(
        results.failures,
        (Column("entry", "model", text=True), lambda failure: failure.entry, None),
        (Column("seed", "seed"), lambda failure: failure.seed, str),
        (Column("phase", "phase", text=True), lambda failure: failure.phase, None),
        (Column("error", "error", text=True), lambda failure: failure.error, None),
        (Column("key", "trial", text=True), lambda failure: failure.key, None),
    )


def settings_text(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{path}={json.dumps(value)}" for path, value in settings.items()) or NONE


def _short_names(paths: Sequence[str]) -> dict[str, str]:
    """`learning rate` for `train.lr`: the last word of a path, as people call it, or two where one is not unique."""
    last = [path.rpartition(".")[2] for path in paths]
    words = [name if last.count(name) == 1 else " ".join(path.split(".")[-2:]) for path, name in zip(paths, last)]
    return {path: "learning rate" if name == "lr" else name.replace("_", " ") for path, name in zip(paths, words)}


def _value(value: object) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.6g}"
        case int():
            return whole(value) if value >= 10_000 else str(value)
        case None:
            return NONE
        case _:
            return str(value)


def _informative(table: Table, *, kept: Collection[str]) -> Table:
    """Columns without a value are left out; those in which all entries agree, or one has a value, stay for machines."""
    if not table.rows:
        return table
    known = [at for at in range(len(table.columns)) if any(row[at].value is not None for row in table.rows)]
    columns = []
    for at in known:
        column, cells = table.columns[at], [row[at] for row in table.rows]
        alone = len(cells) > 2 and sum(cell.value is not None for cell in cells) == 1
        constant = len(cells) > 1 and len({cell.text for cell in cells}) == 1
        constant = (constant or alone) and column.name not in kept
        columns.append(column._replace(shown=column.shown and not constant))
    rows = tuple(tuple(row[at] for at in known) for row in table.rows)
    return table._replace(columns=tuple(columns), rows=rows)


def off(results: Results, solved: Mapping[str, Entry], name: str, kind: HeldKind) -> float | None:
    """Relative deviation of an entry from the budget; None where it is outside the budget."""
    held = next((budget for budget in solved[name].held if budget.kind == kind), None) if name in solved else None
    if held is None:
        return None
    used = results.mean(name, lambda run: _used(run, kind)) if name in results.final else None
    return held.error if used is None else used / held.wanted - 1


def _used(run: Found, kind: HeldKind) -> float | None:
    match kind:
        case "seconds":
            return run.seconds
        case "tokens":
            return float(run.tokens)
        case "flops":
            return TRAINING_FLOPS * run.flops_per_token * run.tokens
        case _:
            return None


def held_equal(results: Results, entries: Sequence[Entry]) -> str:
    """`60,000 parameters, met to within 1.2 %; 60 seconds of training, met to within 0.3 %`."""
    solved = {entry.name: entry for entry in entries}
    said = []
    for kind, amount in results.study.budget.held():
        amounts = {held.wanted for entry in entries for held in entry.held if held.kind == kind}
        amounts = amounts or ({amount} if amount is not None else set())
        errors = [abs(error) for name in solved if (error := off(results, solved, name, kind)) is not None]
        much = f"{next(iter(amounts)):,.0f} " if len(amounts) == 1 else ""
        said.append(f"{much}{UNITS[kind]}" + (f", met to within {share(max(errors))}" if errors else ""))
    return "; ".join(said) or "nothing"
