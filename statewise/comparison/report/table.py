"""Tables as data: a value for machines and the text for people in every cell."""

import csv
import io
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from statewise.comparison.budget import Entry
from statewise.comparison.report.number import NONE, count, duration, plain, share, size, whole, with_interval
from statewise.comparison.report.results import Results
from statewise.comparison.report.verdict import half_width
from statewise.comparison.statistics import Ranking

Value = float | int | str | None


class Column(NamedTuple):
    name: str  # for machines
    title: str
    unit: str = ""
    text: bool = False  # words, not numbers
    shown: bool = True  # to people; machines get all


class Cell(NamedTuple):
    value: Value
    text: str


class Table(NamedTuple):
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    best: int | None = None  # the row that the verdict is about

    def as_dict(self) -> dict[str, Any]:
        return {
            "columns": [column._asdict() for column in self.columns],
            "rows": [{column.name: cell._asdict() for column, cell in zip(self.columns, row)} for row in self.rows],
        }

    def csv(self) -> str:
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow([f"{c.title} ({c.unit})" if c.unit else c.title for c in self.columns])
        writer.writerows([["" if cell.value is None else cell.value for cell in row] for row in self.rows])
        return out.getvalue()

    def for_people(self) -> "Table":
        kept = [at for at, column in enumerate(self.columns) if column.shown]
        rows = tuple(tuple(row[at] for at in kept) for row in self.rows)
        return self._replace(columns=tuple(self.columns[at] for at in kept), rows=rows)


def words(value: str) -> Cell:
    return Cell(value, value)


def number(value: float | None, form: Any) -> Cell:
    return Cell(None, NONE) if value is None else Cell(value, form(value))


def entry_table(results: Results, ranking: Ranking, solved: Mapping[str, Entry]) -> Table:
    """One row an entry, best first; those without a result stand at the end and say so."""
    context = results.stated_context()
    interval = f"mean ± 95 % interval, {results.study.better} is better"
    columns = [
        Column("entry", "entry", text=True),
        Column("metric", results.metric, interval),
        Column("low", "from", "of the interval", shown=False),
        Column("high", "to", "of the interval", shown=False),
        Column("seeds", "seeds"),
        Column("group", "group", "equal: not distinguishable"),
        Column("parameters", "parameters"),
        Column("budget_error", "off the budget"),
        Column("flops_per_token", "FLOPs / token", "forward"),
        Column("state_bytes", "state", f"after {context:,} tokens" if context else ""),
        Column("tokens_per_second", "training", "tokens / s"),
        Column("decode_tokens_per_second", "decoding", "tokens / s"),
        Column("peak_bytes", "memory", "peak of the process"),
        Column("seconds", "training time", "a trial"),
    ]
    rows: list[tuple[Cell, ...]] = []
    for standing in ranking.standings:
        name = standing.entry
        low, high = standing.t_interval or (None, None)
        error = solved[name].error if name in solved else None
        rows.append(
            (
                words(name),
                Cell(standing.mean, with_interval(standing.mean, half_width(standing))),
                number(low, plain),
                number(high, plain),
                Cell(len(standing.figures), f"{len(standing.figures)} of {results.study.seeds}"),
                Cell(ranking.group(name), str(ranking.group(name))),
                number(results.mean(name, lambda one: float(one.parameters)), whole),
                number(error, share),
                number(results.mean(name, lambda one: one.flops_per_token), count),
                number(
                    results.mean(
                        name, lambda one: float(one.state_bytes[context]) if context in one.state_bytes else None
                    )
                    if context
                    else None,
                    size,
                ),
                number(results.mean(name, lambda one: one.tokens_per_second), count),
                number(results.mean(name, lambda one: one.decode_tokens_per_second), count),
                number(results.mean(name, lambda one: float(one.peak_bytes)), size),
                number(results.mean(name, lambda one: one.seconds), duration),
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
