"""The answer in two sentences: who is best and by how much, and what that costs."""

from statewise.comparison.report.results import SHARES, Results
from statewise.comparison.statistics import Ranking, Standing
from statewise.figures.number import count, plain, rough, share, size, with_interval


def verdict(results: Results, ranking: Ranking) -> tuple[str, str]:
    if not ranking.standings:
        return ("No trial has finished yet, so there is nothing to compare.", _failed(results))
    best = ranking.standings[0]
    held = next((one for one in ranking.standings if one.entry not in results.unheld), best)
    return _who(results, ranking, best) + _bound(results, ranking, best, held), _cost(results, ranking, held)


def told_apart(ranking: Ranking) -> bool:
    """Whether anything could be: one seed is no measure of chance."""
    return any(len(one.figures) > 1 for one in ranking.standings)


def figure_text(standing: Standing) -> str:
    """`2.314 ± 0.021`; where no seed changes it, or there is one alone, no interval."""
    if standing.t_interval is None or standing.deviation == 0:
        return plain(standing.mean)
    return with_interval(standing.mean, standing.t_interval[1] - standing.mean)


def _who(results: Results, ranking: Ranking, best: Standing) -> str:
    figure = f"{figure_text(best)} {results.metric}"
    several = f"{'on each of' if best.deviation == 0 else 'over'} {len(best.figures)} seeds"
    seeds = several if len(best.figures) > 1 else "on one seed"
    if len(ranking.standings) == 1:
        return f"Only {named(best.entry)} has finished, with {figure} {seeds}, so there is nothing to set it beside."
    same_figure = [one.entry for one in ranking.standings if one.mean == best.mean]
    if len(same_figure) == len(ranking.standings):
        return f"All have the same figure, {figure} {seeds}: it tells none of them apart."
    if not told_apart(ranking):
        second = next(one for one in ranking.standings if one.mean != best.mean)
        gap = f"{margin(best.mean, second.mean, results)} that of {named(second.entry)}"
        have = "has" if len(same_figure) == 1 else "have"
        return (
            f"{listed(_few(same_figure))} {have} the best figure, {figure} {seeds}, {gap}; one seed cannot tell "
            "whether that is more than chance."
        )
    if len(ranking.groups) == 1:
        last = ranking.standings[-1]
        return (
            f"The seeds tell none of the {len(ranking.standings)} entries apart: their means go from {figure} "
            f"({named(best.entry)}, {seeds}) to {figure_text(last)} ({named(last.entry)})."
        )
    tied = ranking.groups[0][1:]
    after = next(one for one in ranking.standings if one.entry not in ranking.groups[0])
    head = f"{named(best.entry)} is best, with {figure} {seeds}"
    if len(same_figure) > 1:  # none of them is better, by no digit
        head = f"{listed(_few(same_figure))} are best, all with {figure} {seeds}"
        tied = [name for name in tied if name not in same_figure]
    if not tied:
        return f"{head}, {margin(best.mean, after.mean, results)} that of the next, {named(after.entry)}."
    it, is_ = ("them", "they are") if len(same_figure) > 1 else ("it", "it is")
    same = f"{head}, but {listed(_few(tied))} {'is' if len(tied) == 1 else 'are'} not distinguishable from {it}"
    apart = f"{margin(best.mean, after.mean, results)} {named(after.entry)}"
    return f"{same}; {is_} {apart}, the next that can be told apart."


def _bound(results: Results, ranking: Ranking, best: Standing, held: Standing) -> str:
    """Who is best of those that had to share the budget, where the best of all did not."""
    if held.entry in results.unheld or held is best:
        return ""
    equals = next(group for group in ranking.groups if held.entry in group)
    tied = [name for name in equals if name != held.entry and name not in results.unheld and told_apart(ranking)]
    same = f", not distinguishable from {listed(_few(tied))}" if tied else ""
    figure = f"{figure_text(held)} {results.metric}"
    among = f"of those that share it, {named(held.entry)} is best, with {figure}{same}"
    return f" The budget does not hold for {named(best.entry)}; {among}."


def margin(one: float, other: float, results: Results) -> str:
    """`0.12 (5.1 %) below`."""
    word = "below" if one < other else "above"
    relative = f" ({share(abs(one - other) / abs(other))})" if other and results.study.metric not in SHARES else ""
    return f"{rough(abs(one - other))}{relative} {word}"


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
    state = state_of(results, entry, context)
    if state is not None and context is not None:
        said.append(f"{size(state)} of state after {context:,} tokens")
    sentence = f"{named(entry)} has {listed(said)}" if said else named(entry)
    if speed_of(results, entry):
        joined = ", and " if said else " "
        sentence += f"{joined}trains at {count(speed_of(results, entry))} tokens a second"
    elif not said:
        return ""
    if len(best.figures) < 2:
        return f"{sentence}."  # of one seed it is said already that it tells nothing apart
    group = next(group for group in ranking.groups if entry in group)
    equals = [name for name in group if name != entry and name not in results.unheld]
    cheaper = min(equals, key=lambda name: state_of(results, name, context) or 0, default=None)
    less = None if cheaper is None else state_of(results, cheaper, context)
    if cheaper and less and state and less < 0.8 * state:
        return f"{sentence}; {named(cheaper)}, which cannot be told from it, keeps {size(less)}."
    quicker = max(equals, key=lambda name: speed_of(results, name), default=None)
    if quicker and speed_of(results, quicker) > 1.25 * speed_of(results, entry):
        faster = count(speed_of(results, quicker))
        return f"{sentence}; {named(quicker)}, which cannot be told from it, trains at {faster}."
    return f"{sentence}."


def state_of(results: Results, entry: str, context: int | None) -> float | None:
    if context is None:
        return None
    return results.mean(entry, lambda one: float(one.state_bytes[context]) if context in one.state_bytes else None)


def speed_of(results: Results, entry: str) -> float:
    return results.mean(entry, lambda one: one.tokens_per_second) or 0.0


def _failed(results: Results) -> str:
    if results.failures:
        return f"{len(results.failures)} trials failed; the reasons are listed below."
    return "Run the same command again to go on."


def _few(names: list[str]) -> list[str]:
    """As they are called, and no more than can be read."""
    called = [named(name) for name in names]
    return called if len(called) <= 6 else [*called[:5], f"{len(called) - 5} others"]


def named(entry: str) -> str:
    """In a sentence, a name of several words needs its own marks."""
    return f"“{entry}”" if " " in entry or "," in entry else entry


def listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
