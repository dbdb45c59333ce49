"""The report's tables: the entries, the search, every trial, what failed."""

import json
from collections.abc import Mapping
from typing import Any

from statewise.comparison.budget import UNITS, Entry
from statewise.comparison.report.held import off
from statewise.comparison.report.results import Results
from statewise.comparison.report.verdict import figure_text, told_apart
from statewise.comparison.statistics import Ranking
from statewise.figures.number import NONE, count, duration, plain, share, size, whole
from statewise.figures.table import Cell, Column, Table, number, words


def entry_table(results: Results, ranking: Ranking, solved: Mapping[str, Entry]) -> Table:
    """One row an entry, best first; those without a result stand at the end and say so."""
    context = results.stated_context()
    held = [kind for kind, _ in results.study.budget.held()]
    interval = f"{'mean ± 95 % interval' if results.several else 'one seed'}, {results.study.better} is better"
    columns = [
        Column("entry", "entry", text=True),
        Column("metric", results.metric, interval),
        Column("low", "from", "of the interval", shown=False),
        Column("high", "to", "of the interval", shown=False),
        Column("seeds", "seeds"),
        Column("group", "group", "equal: not distinguishable"),
        Column("parameters", "parameters"),
        *(Column(f"off_{kind}", "off the budget", UNITS[kind]) for kind in held),
        Column("flops_per_token", "FLOPs", "a token, forward"),
        Column("state_bytes", "state", f"after {context:,} tokens" if context else ""),
        Column("tokens_per_second", "training", "tokens / s"),
        Column("decode_tokens_per_second", "decoding", "tokens / s"),
        Column("peak_bytes", "memory", "peak of the process"),
        Column("steps", "steps", "a trial"),
        Column("seconds", "training time", "a trial"),
    ]
    several = told_apart(ranking)
    rows: list[tuple[Cell, ...]] = []
    for standing in ranking.standings:
        name = standing.entry
        low, high = standing.t_interval or (None, None)
        rows.append(
            (
                words(name),
                Cell(standing.mean, figure_text(standing)),
                number(low, plain),
                number(high, plain),
                Cell(len(standing.figures), f"{len(standing.figures)} of {results.study.seeds}"),
                Cell(ranking.group(name), str(ranking.group(name))) if several else Cell(None, NONE),
                number(results.mean(name, lambda one: float(one.parameters)) or None, whole),  # who counts has none
                *(number(off(results, solved, name, kind), share) for kind in held),
                number(results.mean(name, lambda one: one.flops_per_token) or None, count),
                number(
                    results.mean(
                        name, lambda one: float(one.state_bytes[context]) if context in one.state_bytes else None
                    )
                    if context
                    else None,
                    size,
                ),
                number(results.mean(name, lambda one: one.tokens_per_second) or None, count),
                number(results.mean(name, lambda one: one.decode_tokens_per_second), count),
                number(results.mean(name, lambda one: float(one.peak_bytes)), size),
                number(results.mean(name, lambda one: float(one.steps)) or None, whole),
                number(results.mean(name, lambda one: one.seconds) or None, duration),
            )
        )
    nothing = (Cell(None, NONE),) * (len(columns) - 5)
    for name in results.order:
        if name not in results.final:
            seeds = Cell(0, f"0 of {results.study.seeds}")
            rows.append((words(name), Cell(None, "no result"), Cell(None, NONE), Cell(None, NONE), seeds, *nothing))
    return _without_empty(Table(tuple(columns), tuple(rows), best=0 if ranking.standings else None))


def search_table(results: Results) -> Table | None:
    """Every try of every entry, in its order; the chosen one is what the seeds were run with."""
    failed = [one for one in results.failures if one.phase == "search"]
    if not results.search and not failed:
        return None
    rows = []
    for name in results.order:
        chosen = results.final[name][0].settings if name in results.final else None
        tries = [one for one in results.search if one.entry == name]
        sign = 1 if results.study.better == "lower" else -1
        best = min(
            (one for one in tries if one.settings == chosen),
            key=lambda one: sign * one.figures[results.study.metric],
            default=None,
        )
        for one in tries:
            mark = "chosen" if one is best else ""
            figure = one.figures[results.study.metric]
            rows.append((words(name), words(settings_text(one.settings)), Cell(figure, plain(figure)), words(mark)))
        rows += [
            (words(name), words(NONE), Cell(None, "failed"), words(one.error)) for one in failed if one.entry == name
        ]
    columns = (
        Column("entry", "entry", text=True),
        Column("settings", "settings", text=True),
        Column("figure", results.metric, "on the search's seed"),
        Column("note", "", text=True),
    )
    return Table(columns, tuple(rows))


def trial_table(results: Results) -> Table:
    """Every final trial: what makes its numbers traceable to a folder."""
    columns = (
        Column("entry", "entry", text=True),
        Column("seed", "seed"),
        Column("figure", results.metric),
        Column("settings", "solved and searched", text=True),
        Column("steps", "steps"),
        Column("tokens", "tokens"),
        Column("seconds", "training time"),
        Column("key", "trial", text=True),
        Column("weights", "weights", "SHA-256", text=True),
    )
    rows = []
    for name in results.done:
        for one in results.final[name]:
            figure = one.figures[results.study.metric]
            rows.append(
                (
                    words(name),
                    Cell(one.seed, str(one.seed)),
                    Cell(figure, plain(figure)),
                    words(settings_text(one.settings)),
                    Cell(one.steps, whole(one.steps)),
                    Cell(one.tokens, whole(one.tokens)),
                    Cell(one.seconds, duration(one.seconds)),
                    words(one.key),
                    Cell(one.weights_sha256, one.weights_sha256[:16]),
                )
            )
    return Table(columns, tuple(rows))


def failure_table(results: Results) -> Table | None:
    if not results.failures:
        return None
    columns = (
        Column("entry", "entry", text=True),
        Column("seed", "seed"),
        Column("phase", "phase", text=True),
        Column("error", "what happened", text=True),
        Column("key", "trial", text=True),
    )
    rows = tuple(
        (words(one.entry), Cell(one.seed, str(one.seed)), words(one.phase), words(one.error), words(one.key))
        for one in results.failures
    )
    return Table(columns, rows)


def settings_text(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{path}={json.dumps(value)}" for path, value in settings.items()) or NONE


def _without_empty(table: Table) -> Table:
    """A column that no entry has anything in is left out."""
    kept = [at for at in range(len(table.columns)) if any(row[at].value is not None for row in table.rows)]
    if not table.rows:
        return table
    rows = tuple(tuple(row[at] for at in kept) for row in table.rows)
    return table._replace(columns=tuple(table.columns[at] for at in kept), rows=rows)
