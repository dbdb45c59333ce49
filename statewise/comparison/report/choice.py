"""Which one to choose: a row per constraint, with the cheapest entry tied with the best, and the cheapest of all."""

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import NamedTuple

from statewise.comparison.report.results import Results
from statewise.comparison.report.verdict import few, has_spread, listed, margin, named, score_text
from statewise.comparison.statistics import Ranking, Standing
from statewise.comparison.trial import Found
from statewise.display import NONE, Format, count, duration, size, whole
from statewise.figures import Column, Table, words

_LESS = 0.8  # a cost counts as lower only if it is at most this share of the other


class _Cost(NamedTuple):
    """A constraint: lower is better, unless it is a speed."""

    title: str
    winner: str  # what the cheapest entry has
    each: Callable[[str], list[float]]  # of an entry: a value per seed, or none
    form: Format
    speed: bool = False

    def mean(self, entry: str) -> float | None:
        values = self.each(entry)
        return fmean(values) if values else None

    def rank(self, entry: str) -> float:
        value = self.mean(entry)
        assert value is not None
        return -value if self.speed else value

    def text(self, entry: str) -> str:
        value = self.mean(entry)
        return NONE if value is None else self.form(value)

    def clearly_less(self, name: str, other: str) -> bool:
        """With every seed, not only in the mean: times also measure what else the machine did."""
        here, there = self.each(name), self.each(other)
        if self.speed:
            return _LESS * min(here) > max(there)
        return max(here) < _LESS * min(there)


class Choices(NamedTuple):
    table: Table
    said: str  # the same in a sentence


def choices(results: Results, ranking: Ranking) -> Choices | None:
    """None where there is nothing to choose from: one entry, or one seed and no cheaper entry."""
    if len(ranking.standings) < 2:
        return None
    first, standing = ranking.standings[0], {standing.entry: standing for standing in ranking.standings}
    best = next((standing for standing in ranking.standings if standing.entry not in results.unmatched), first)
    tied = [best.entry]
    if has_spread(ranking):
        tied += [
            name
            for name in standing
            if name not in (best.entry, *results.unmatched) and not ranking.between(best.entry, name).distinguishable
        ]
    nothing = (NONE, NONE, NONE)
    beyond = (first.entry, score_text(first), _score(first, best, results)) if first is not best else nothing
    rows = [(results.metric, best.entry, score_text(best), *beyond)]
    cheaper: list[tuple[str, _Cost]] = []
    for cost in _costs(results):
        if cost.mean(best.entry) is None:
            continue
        among_tied, of_all = (_cheapest(names, cost, best) for names in (tied, list(standing)))
        beyond = nothing
        if of_all not in tied:
            beyond = (of_all, cost.text(of_all), _score(standing[of_all], best, results))
        if among_tied != best.entry:
            cheaper.append((among_tied, cost))
        elif beyond == nothing:
            continue  # the best itself, and no other is cheaper
        rows.append((cost.title, among_tied, cost.text(among_tied), *beyond))
    if len(rows) == 1 and not has_spread(ranking):
        return None
    columns = [
        Column("wanted", "constraint", text=True),
        Column("near", "best choice", "among ties" if has_spread(ranking) else "", text=True),
        Column("near_has", "value", text=True),
    ]
    if any(row[-1] != NONE for row in rows):
        columns += [
            Column("cheapest", "cheapest of all", text=True, minor=True),
            Column("cheapest_has", "value", text=True, minor=True),
            Column("price", "its score", results.metric, text=True, minor=True),
        ]
    cells = tuple(tuple(map(words, row[: len(columns)])) for row in rows)
    outside = "" if first is best else f"{named(first.entry)} has the best score but is not size-matched. "
    return Choices(Table(tuple(columns), cells), outside + _sentence(best, tied, cheaper, several=has_spread(ranking)))


def _score(standing: Standing, best: Standing, results: Results) -> str:
    return f"{score_text(standing)}: {margin(standing.mean, best.mean, results)} {best.entry}"


def _costs(results: Results) -> list[_Cost]:
    context = results.stated_context()
    at = -1 if context is None else context

    def of(field: Callable[[Found], float | None]) -> Callable[[str], list[float]]:
        # A count model has no parameters and no FLOPs: that makes it no cheaper.
        return lambda name: [value for run in results.final[name] if (value := field(run))]

    return [
        _Cost(
            f"state after {context or 0:,} tokens", "the smallest state", of(lambda run: run.state_bytes.get(at)), size
        ),
        _Cost("model size", "the smallest model", of(lambda run: run.model_bytes), size),
        _Cost("parameters", "the fewest parameters", of(lambda run: run.parameters), whole),
        _Cost("FLOPs per token", "the fewest FLOPs", of(lambda run: run.flops_per_token), count),
        _Cost("training time", "the shortest training", of(lambda run: run.seconds), duration),
        _Cost(
            "decoding speed, tokens / s",
            "the fastest decoding",
            of(lambda run: run.decode_tokens_per_second),
            count,
            speed=True,
        ),
    ]


def _cheapest(names: Sequence[str], cost: _Cost, best: Standing) -> str:
    """The best itself, unless another costs clearly less."""
    less = [entry for entry in names if cost.each(entry) and cost.clearly_less(entry, best.entry)]
    return min(less, key=cost.rank, default=best.entry)


def _sentence(best: Standing, tied: Sequence[str], cheaper: Sequence[tuple[str, _Cost]], *, several: bool) -> str:
    if not several:
        return "One seed cannot show which entries are tied with the best."
    if len(tied) == 1:
        return f"No other model is statistically tied with {named(best.entry)}: every cheaper choice scores worse."
    same = f"{listed(few([name for name in tied if name != best.entry]))} {'is' if len(tied) == 2 else 'are'}"
    same = f"{same} statistically tied with {named(best.entry)}"
    if not cheaper:
        return f"{same}; none costs clearly less." if len(tied) > 2 else f"{same} but costs no less."
    less = [f"{cost.winner}: {named(name)} ({cost.text(name)}, not {cost.text(best.entry)})" for name, cost in cheaper]
    return f"{same}. Among them, {'; '.join(less)}."
