"""Which one to take: the cheapest of those that cannot be told from the best, and what the cheapest of all gives up."""

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import NamedTuple

from statewise.comparison.report.results import Results
from statewise.comparison.report.verdict import figure_text, listed, margin, named, told_apart
from statewise.comparison.statistics import Ranking, Standing
from statewise.comparison.trial import Found
from statewise.figures.number import NONE, Format, count, duration, size, whole
from statewise.figures.table import Column, Table, words

_LESS = 0.8  # of what the best has, at most: a smaller difference is none to choose by


class _Cost(NamedTuple):
    """Something that somebody may have little of: less is better, unless it is a speed."""

    words: str  # what counts
    most: str  # what is said of whoever is ahead in it
    each: Callable[[str], list[float]]  # of an entry: a value a seed, or none
    form: Format
    speed: bool = False

    def of(self, entry: str) -> float | None:
        values = self.each(entry)
        return fmean(values) if values else None

    def rank(self, entry: str) -> float:
        value = self.of(entry)
        assert value is not None
        return -value if self.speed else value

    def had(self, entry: str) -> str:
        value = self.of(entry)
        return NONE if value is None else self.form(value)

    def clearly_less(self, one: str, other: str) -> bool:
        """With every seed, not in the mean alone: what else a machine did is in its times."""
        here, there = self.each(one), self.each(other)
        if self.speed:
            return _LESS * min(here) > max(there)
        return max(here) < _LESS * min(there)


class Choices(NamedTuple):
    table: Table
    said: str  # the same in a sentence


def choices(results: Results, ranking: Ranking) -> Choices | None:
    """None where there is nothing to choose from."""
    if len(ranking.standings) < 2:
        return None
    first, told = ranking.standings[0], {one.entry: one for one in ranking.standings}
    best = next((one for one in ranking.standings if one.entry not in results.unheld), first)
    several = told_apart(ranking)
    near = [best.entry]
    if several:
        near += [name for name in told if name not in (best.entry, *results.unheld) and _alike(ranking, best, name)]
    beyond: tuple[str, ...] = (NONE, NONE, NONE)
    if first is not best:
        beyond = (first.entry, figure_text(first), f"{margin(first.mean, best.mean, results)} {best.entry}")
    rows = [(f"the figure: {results.metric}", best.entry, figure_text(best), *beyond)]
    ahead: list[tuple[str, _Cost]] = []
    for cost in _costs(results):
        if cost.of(best.entry) is None:
            continue
        mine, cheapest = (_least(some, cost, best) for some in (near, list(told)))
        if cheapest == best.entry:
            rows.append((cost.words, best.entry, cost.had(best.entry), NONE, NONE, NONE))
            continue
        beyond = (NONE, NONE, NONE)
        if cheapest not in near:
            beyond = (cheapest, cost.had(cheapest), f"{margin(told[cheapest].mean, best.mean, results)} {best.entry}")
        rows.append((cost.words, mine, cost.had(mine), *beyond))
        if mine != best.entry:
            ahead.append((mine, cost))
    columns = [
        Column("wanted", "what counts", text=True),
        Column("near", "take", "of the best and those not told from it", text=True)
        if several
        else Column("near", "the best", text=True),
        Column("near_has", "it has", text=True),
    ]
    others = [
        Column("cheapest", "or, of all", "where another has still less", text=True),
        Column("cheapest_has", "it has", text=True),
        Column("price", "which is", results.metric, text=True),
    ]
    if any(row[-1] != NONE for row in rows):
        columns += others
    cells = tuple(tuple(map(words, row[: len(columns)])) for row in rows)
    outside = "" if first is best else f"{named(first.entry)} has the best figure, outside of the budget. "
    return Choices(Table(tuple(columns), cells), outside + _said(best, near, ahead, several, shared=first is not best))


def _alike(ranking: Ranking, best: Standing, name: str) -> bool:
    return not ranking.between(best.entry, name).distinguishable


def _costs(results: Results) -> list[_Cost]:
    context = results.stated_context()
    at = -1 if context is None else context

    def of(field: Callable[[Found], float | None]) -> Callable[[str], list[float]]:
        # What counts, and does not learn, has none of some things: that is no virtue.
        return lambda name: [value for one in results.final[name] if (value := field(one))]

    return [
        _Cost(
            f"state after {context or 0:,} tokens", "the smallest state", of(lambda one: one.state_bytes.get(at)), size
        ),
        _Cost("parameters", "the fewest parameters", of(lambda one: one.parameters), whole),
        _Cost("FLOPs a token", "the fewest FLOPs", of(lambda one: one.flops_per_token), count),
        _Cost("training time", "the shortest training", of(lambda one: one.seconds), duration),
        _Cost(
            "writing speed, tokens / s",
            "the fastest writing",
            of(lambda one: one.decode_tokens_per_second),
            count,
            speed=True,
        ),
    ]


def _least(some: Sequence[str], cost: _Cost, best: Standing) -> str:
    """The best itself, unless another has clearly less."""
    less = [entry for entry in some if cost.each(entry) and cost.clearly_less(entry, best.entry)]
    return min(less, key=cost.rank, default=best.entry)


def _said(
    best: Standing, near: Sequence[str], ahead: Sequence[tuple[str, _Cost]], several: bool, *, shared: bool
) -> str:
    if not several:
        return "One seed does not say who is as good as the best; what others have less of is set beside it."
    if len(near) == 1:
        inside = "inside it " if shared else ""
        return (
            f"By these seeds nobody else {inside}is as good as {named(best.entry)}: whoever takes another for its cost "
            "gives up some of the figure."
        )
    others = listed([named(name) for name in near if name != best.entry])
    same = f"By these seeds, {others} cannot be told from {named(best.entry)}"
    if not ahead:
        return f"{same}, and {'none of them costs' if len(near) > 2 else 'it does not cost'} clearly less."
    less = [f"{cost.most}: {named(name)} ({cost.had(name)} for {cost.had(best.entry)})" for name, cost in ahead]
    return f"{same}. Of them, {'; '.join(less)}."
