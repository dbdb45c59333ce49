"""The answer in two sentences: who is best and by how much, and what that costs."""

from statewise.comparison.report.results import Results
from statewise.comparison.statistics import Ranking, Standing
from statewise.figures.number import count, rough, share, size, with_interval


def verdict(results: Results, ranking: Ranking) -> tuple[str, str]:
    if not ranking.standings:
        return ("No trial has finished yet, so there is nothing to compare.", _failed(results))
    best = ranking.standings[0]
    held = next((one for one in ranking.standings if one.entry not in results.unheld), best)
    return _who(results, ranking, best) + _bound(results, ranking, best, held), _cost(results, ranking, held)


def half_width(standing: Standing) -> float | None:
    return None if standing.t_interval is None else standing.t_interval[1] - standing.mean


def _who(results: Results, ranking: Ranking, best: Standing) -> str:
    figure = f"{with_interval(best.mean, half_width(best))} {results.metric}"
    seeds = f"over {len(best.figures)} seeds" if len(best.figures) > 1 else "on one seed"
    if len(ranking.standings) == 1:
        return f"Only {_named(best.entry)} has finished, with {figure} {seeds}, so there is nothing to set it beside."
    tied = ranking.groups[0][1:]
    after = next((one for one in ranking.standings if one.entry not in ranking.groups[0]), None)
    if all(len(one.figures) < 2 for one in ranking.standings):
        second = ranking.standings[1]
        margin = f"{_margin(best.mean, second.mean, results)} that of {_named(second.entry)}"
        return (
            f"{_named(best.entry)} has the best figure, {figure} {seeds}, {margin}; one seed cannot tell whether that "
            "is more than chance."
        )
    head = f"{_named(best.entry)} is best, with {figure} {seeds}"
    same_figure = [one.entry for one in ranking.standings if one.mean == best.mean]
    if len(same_figure) == len(ranking.standings):
        return f"All have the same figure, {figure} {seeds}: it tells none of them apart."
    if len(same_figure) > 1:  # none of them is better, by no digit
        head = f"{_listed(_few(same_figure))} are best, all with {figure} {seeds}"
        tied = [name for name in tied if name not in same_figure]
    if not tied and after is not None:
        return f"{head}, {_margin(best.mean, after.mean, results)} that of the next, {_named(after.entry)}."
    if not tied:
        return f"{head}."
    it, is_ = ("them", "they are") if len(same_figure) > 1 else ("it", "it is")
    same = f"{head}, but {_listed(_few(tied))} {'is' if len(tied) == 1 else 'are'} not distinguishable from {it}"
    if after is None:
        return f"{same}."
    margin = f"{_margin(best.mean, after.mean, results)} {_named(after.entry)}"
    return f"{same}; {is_} {margin}, the next that can be told apart."


def _bound(results: Results, ranking: Ranking, best: Standing, held: Standing) -> str:
    """Who is best of those that had to share the budget, where the best of all did not."""
    if held.entry in results.unheld or held is best:
        return ""
    equals = next(group for group in ranking.groups if held.entry in group)
    tied = [name for name in equals if name != held.entry and name not in results.unheld]
    same = f", not distinguishable from {_listed(_few(tied))}" if tied else ""
    figure = f"{with_interval(held.mean, half_width(held))} {results.metric}"
    among = f"of those that share it, {_named(held.entry)} is best, with {figure}{same}"
    return f" The budget does not hold for {_named(best.entry)}; {among}."


def _margin(best: float, other: float, results: Results) -> str:
    """`0.12 (5.1 %) below`."""
    word = "below" if results.study.better == "lower" else "above"
    relative = f" ({share(abs(best - other) / abs(other))})" if other else ""
    return f"{rough(abs(best - other))}{relative} {word}"


def _cost(results: Results, ranking: Ranking, best: Standing) -> str:
    entry = best.entry
    said = []
    context = results.stated_context()
    parameters = results.mean(entry, lambda one: float(one.parameters))
    if parameters:
        said.append(f"{count(parameters)} parameters")
    flops = results.mean(entry, lambda one: one.flops_per_token)
    if flops:
        said.append(f"{count(flops)} FLOPs a token")
    state = _state(results, entry, context)
    if state is not None and context is not None:
        said.append(f"{size(state)} of state after {context:,} tokens")
    sentence = f"{_named(entry)} has {_listed(said)}" if said else _named(entry)
    if _speed(results, entry):
        joined = ", and " if said else " "
        sentence += f"{joined}trains at {count(_speed(results, entry))} tokens a second"
    elif not said:
        return ""
    if len(best.figures) < 2:
        return f"{sentence}."  # of one seed it is said already that it tells nothing apart
    group = next(group for group in ranking.groups if entry in group)
    equals = [name for name in group if name != entry and name not in results.unheld]
    cheaper = min(equals, key=lambda name: _state(results, name, context) or 0, default=None)
    less = None if cheaper is None else _state(results, cheaper, context)
    if cheaper and less and state and less < 0.8 * state:
        return f"{sentence}; {_named(cheaper)}, which cannot be told from it, keeps {size(less)}."
    quicker = max(equals, key=lambda name: _speed(results, name), default=None)
    if quicker and _speed(results, quicker) > 1.25 * _speed(results, entry):
        return (
            f"{sentence}; {_named(quicker)}, which cannot be told from it, trains at {count(_speed(results, quicker))}."
        )
    return f"{sentence}."


def _state(results: Results, entry: str, context: int | None) -> float | None:
    if context is None:
        return None
    return results.mean(entry, lambda one: float(one.state_bytes[context]) if context in one.state_bytes else None)


def _speed(results: Results, entry: str) -> float:
    return results.mean(entry, lambda one: one.tokens_per_second) or 0.0


def _failed(results: Results) -> str:
    if results.failures:
        return f"{len(results.failures)} trials failed; the reasons are listed below."
    return "Run the same command again to go on."


def _few(names: list[str]) -> list[str]:
    """As they are called, and no more than can be read."""
    called = [_named(name) for name in names]
    return called if len(called) <= 6 else [*called[:5], f"{len(called) - 5} others"]


def _named(entry: str) -> str:
    """In a sentence, a name that has a comma needs its own marks."""
    return f"“{entry}”" if "," in entry or " and " in entry else entry


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
