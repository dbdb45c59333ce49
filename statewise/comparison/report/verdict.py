"""The answer in two sentences: who is best and by how much, and what that costs."""

from statewise.comparison.report.number import count, rough, share, size, with_interval
from statewise.comparison.report.results import Results
from statewise.comparison.statistics import Ranking, Standing


def verdict(results: Results, ranking: Ranking) -> tuple[str, str]:
    if not ranking.standings:
        return ("No trial has finished yet, so there is nothing to compare.", _failed(results))
    best = ranking.standings[0]
    return _who(results, ranking, best) + _bound(results, ranking, best), _cost(results, ranking, best)


def half_width(standing: Standing) -> float | None:
    return None if standing.t_interval is None else standing.t_interval[1] - standing.mean


def _who(results: Results, ranking: Ranking, best: Standing) -> str:
    figure = f"{with_interval(best.mean, half_width(best))} {results.metric}"
    seeds = f"over {len(best.figures)} seeds" if len(best.figures) > 1 else "on one seed"
    if len(ranking.standings) == 1:
        return f"Only {best.entry} has finished, with {figure} {seeds}, so there is nothing to set it beside."
    tied = ranking.groups[0][1:]
    after = next((one for one in ranking.standings if one.entry not in ranking.groups[0]), None)
    if all(len(one.figures) < 2 for one in ranking.standings):
        second = ranking.standings[1]
        return (
            f"{best.entry} has the best figure, {figure} {seeds}, {_margin(best.mean, second.mean, results)} that of "
            f"{second.entry}; one seed cannot tell whether that is more than chance."
        )
    head = f"{best.entry} is best, with {figure} {seeds}"
    if not tied and after is not None:
        return f"{head}, {_margin(best.mean, after.mean, results)} that of the next, {after.entry}."
    if len(tied) > 6:
        tied = [*tied[:5], f"{len(tied) - 5} others"]
    same = f"{head}, but {_listed(tied)} {'is' if len(tied) == 1 else 'are'} not distinguishable from it"
    if after is None:
        return f"{same}."
    return f"{same}; it is {_margin(best.mean, after.mean, results)} {after.entry}, the next that can be told apart."


def _bound(results: Results, ranking: Ranking, best: Standing) -> str:
    """Who is best of those that had to share the budget, where the best of all did not."""
    held = next((one for one in ranking.standings if not results.unbound(one.entry)), None)
    if not results.unbound(best.entry) or held is None:
        return ""
    equals = next(group for group in ranking.groups if held.entry in group)
    tied = [name for name in equals if name != held.entry and not results.unbound(name)]
    same = f", not distinguishable from {_listed(tied[:5])}" if tied else ""
    figure = f"{with_interval(held.mean, half_width(held))} {results.metric}"
    among = f"of those that share it, {held.entry} is best, with {figure}{same}"
    return f" The budget does not hold for {best.entry}; {among}."


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
    said.append(f"trains at {count(results.mean(entry, lambda one: one.tokens_per_second) or 0)} tokens a second")
    *sizes, speed = said
    sentence = f"{entry} has {_listed(sizes)}, and {speed}" if sizes else f"{entry} {speed}"
    equals = [name for name in ranking.groups[0] if name != entry]
    cheaper = min(equals, key=lambda name: _state(results, name, context) or 0, default=None)
    less = None if cheaper is None else _state(results, cheaper, context)
    if cheaper and less and state and less < 0.8 * state:
        return f"{sentence}; {cheaper}, which cannot be told from it, keeps {size(less)}."
    quicker = max(equals, key=lambda name: _speed(results, name), default=None)
    if quicker and _speed(results, quicker) > 1.25 * _speed(results, entry):
        return f"{sentence}; {quicker}, which cannot be told from it, trains at {count(_speed(results, quicker))}."
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


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
