"""The answer in at most three sentences, computed from the results: who is best, what it costs, at what size."""

from collections.abc import Mapping, Sequence

from statewise.comparison.report.lineage import OTHER
from statewise.comparison.report.results import Results, differ, pareto
from statewise.comparison.statistics import Ranking, Standing
from statewise.comparison.trial import COSTS
from statewise.display import count, plain, rough, share, size, with_interval

_LESS = 0.8  # ratio of two costs from which on one counts as cheaper
_NAMED = 6  # entries that a sentence names at most
_A_STATE = {"window": "a window", "vector": "a vector", "pair": "a pair", "matrix": "a matrix", "list": "a list"}


def verdict(studies: Sequence[tuple[Results, Ranking]]) -> tuple[str, ...]:
    """Of one study three sentences; of several a sentence each, and what it costs to be best in the first."""
    finished = [(results, ranking) for results, ranking in studies if ranking.standings]
    if not finished:
        failed = sum(len(results.failures) for results, _ in studies)
        then = f"{failed} trials failed; the reasons are listed below." if failed else "Run the same command again."
        return ("No trial has finished yet, so there is nothing to compare.", then)
    first, *others = finished
    if others:
        said = [headline(*first), price(*first), *(headline(*study) for study in others)]
    else:
        said = [headline(*first), price(*first), front(*first)]
    return tuple(sentence for sentence in said if sentence)


def headline(results: Results, ranking: Ranking) -> str:
    """The best entry: by the form of the state, by size, or by rank, whichever the study can tell."""
    if separates_forms(results, ranking):
        return _by_form(results, ranking)
    if compares_sizes(results):
        return _by_size(results, ranking)
    return best_sentence(results, ranking)


def separates_forms(results: Results, ranking: Ranking) -> bool:
    """Whether the study is about what kind of state solves a task: shares of right answers, of three forms or more."""
    forms = {results.form(standing.entry) for standing in ranking.standings} - {OTHER}
    return results.share and len(forms) > 2


def compares_sizes(results: Results) -> bool:
    """Whether models of text of different sizes are compared."""
    sizes = [size for name in results.done if (size := results.model_bytes(name))]
    return results.study.metric == "bits_per_byte" and differ(sizes)


# -------------------------------------------------------------------- by the form of the state


def best_by_form(results: Results, ranking: Ranking) -> dict[str, Standing]:
    """The best entry of each form of state, the best form first."""
    best: dict[str, Standing] = {}
    for standing in ranking.standings:
        best.setdefault(results.form(standing.entry), standing)
    return best


def solved_by(results: Results, ranking: Ranking) -> list[str]:
    """The forms of state whose best entry scores nearer to 1 than to the best trivial predictor."""
    half = (1 + max(results.anchors.values(), default=0.0)) / 2
    return [form for form, best in best_by_form(results, ranking).items() if best.mean >= half]


def _by_form(results: Results, ranking: Ranking) -> str:
    by_form, solved = best_by_form(results, ranking), solved_by(results, ranking)
    do, does = ("remember", "remembers") if results.part == "memory" else ("solve the task", "solves the task")
    if not solved:
        best = ranking.standings[0]
        trivial = max(results.anchors.values(), default=None)
        beside = "" if trivial is None else f"; trivial predictors reach {trivial:.2f}"
        return f"No model {does}: the best, {named(best.entry)}, reaches {results.metric} {best.mean:.2f}{beside}."
    scores = [by_form[form].mean for form in solved]
    low, high = f"{min(scores):.2f}", f"{max(scores):.2f}"
    reached = f"{results.metric} {low}" if low == high else f"{results.metric} {low} to {high}"
    rest = [form for form in by_form if form not in solved]
    forms = listed([_A_STATE.get(form, form) for form in solved], last="or")
    if not rest:
        return f"Models with every kind of state here {do}: {forms} ({reached})."
    others = [
        f"{by_form[form].mean:.2f} with {_A_STATE.get(form, form)} ({named(by_form[form].entry)})" for form in rest
    ]
    return f"Only models whose state is {forms} {do} ({reached}); the best others reach {listed(others)}."


# -------------------------------------------------------------------- by size


def _by_size(results: Results, ranking: Ranking) -> str:
    best = ranking.standings[0]
    if len(ranking.standings) < 2 or (len(ranking.groups) == 1 and has_spread(ranking)):
        return best_sentence(results, ranking)
    matched = next((standing for standing in ranking.standings if standing.entry not in results.unmatched), best)
    if matched is best:
        smaller = _best_smaller(results, ranking, best)
        return f"{_predicts(results, best)}{_tied(results, ranking, best)}{smaller}."
    inside = f"{named(matched.entry)} is best, {_score_and_size(results, matched)}{_tied(results, ranking, matched)}"
    return f"{_predicts(results, best)}, but is not size-matched; among the models that are, {inside}."


def _predicts(results: Results, standing: Standing) -> str:
    return f"{named(standing.entry)} predicts best, {_score_and_size(results, standing)}"


def _score_and_size(results: Results, standing: Standing) -> str:
    """`1.617 bits per byte in 8.6 MiB`: of everything that is needed to predict."""
    bytes_needed = results.model_bytes(standing.entry)
    return f"{score_text(standing)} {results.metric}" + (f" in {size(bytes_needed)}" if bytes_needed else "")


def _best_smaller(results: Results, ranking: Ranking, best: Standing) -> str:
    """The best entry of at most half the size, where the winner is not among the smallest."""
    most = (results.model_bytes(best.entry) or 0.0) / 2
    less = [standing for standing in ranking.standings if 0 < (results.model_bytes(standing.entry) or 0.0) <= most]
    return (
        f"; at half that size or less, {named(less[0].entry)} is best ({_score_and_size(results, less[0])})"
        if less
        else ""
    )


def _tied(results: Results, ranking: Ranking, best: Standing) -> str:
    group = next(group for group in ranking.groups if best.entry in group)
    tied = [name for name in group if name != best.entry and name not in results.unmatched]
    return f", statistically tied with {listed(few(tied))}" if tied and has_spread(ranking) else ""


# -------------------------------------------------------------------- by rank


def best_sentence(results: Results, ranking: Ranking) -> str:
    """The entry with the best score, by how much, and the entries that are statistically tied with it."""
    best = ranking.standings[0]
    score = f"{score_text(best)} {results.metric}"
    seeds = f"mean of {len(best.figures)} seeds" if best.deviation != 0 else f"on each of {len(best.figures)} seeds"
    seeds = seeds if len(best.figures) > 1 else "one seed"
    if len(ranking.standings) == 1:
        return f"Only {named(best.entry)} has finished: {score} ({seeds})."
    equal = [standing.entry for standing in ranking.standings if standing.mean == best.mean]
    if len(equal) == len(ranking.standings):
        return f"All {len(equal)} entries have the same score, {score} ({seeds})."
    if not has_spread(ranking):
        second = next(standing for standing in ranking.standings if standing.mean != best.mean)
        verb = "has" if len(equal) == 1 else "have"
        return (
            f"{listed(few(equal))} {verb} the best score, {score}, {margin(best.mean, second.mean, results)} "
            f"{named(second.entry)}; one seed cannot show whether the difference is significant."
        )
    if len(ranking.groups) == 1:
        last = ranking.standings[-1]
        return (
            f"All {len(ranking.standings)} entries are statistically tied, from {score} ({named(best.entry)}, {seeds}) "
            f"to {score_text(last)} ({named(last.entry)})."
        )
    tied = [name for name in ranking.groups[0] if name not in equal]
    after = next(standing for standing in ranking.standings if standing.entry not in ranking.groups[0])
    verb = "is" if len(equal) == 1 else "are"
    head = f"{listed(few(equal))} {verb} best, with {score} ({seeds}), {margin(best.mean, after.mean, results)}"
    if tied:
        head = f"{head} the best model that is not tied, {named(after.entry)}; statistically tied: {listed(few(tied))}"
    else:
        head = f"{head} the next, {named(after.entry)}"
    return f"{head}.{_matched(results, ranking, best)}"


def _matched(results: Results, ranking: Ranking, best: Standing) -> str:
    """The best of the size-matched entries, where the best of all is not one of them."""
    matched = next((standing for standing in ranking.standings if standing.entry not in results.unmatched), best)
    if matched is best or best.entry not in results.unmatched:
        return ""
    score = f"{score_text(matched)} {results.metric}{_tied(results, ranking, matched)}"
    return (
        f" {named(best.entry)} is not size-matched; among the models that are, {named(matched.entry)} is best: {score}."
    )


# -------------------------------------------------------------------- what it costs


def price(results: Results, ranking: Ranking) -> str:
    """What the best keep in memory while they run, and who is as good with less."""
    if separates_forms(results, ranking) and solved_by(results, ranking):
        return _price_of_form(results, ranking)
    best = next(
        (standing for standing in ranking.standings if standing.entry not in results.unmatched), ranking.standings[0]
    )
    entry, context = best.entry, results.stated_context()
    needs = []
    if (parameters := results.mean(entry, lambda run: float(run.parameters))) and results.study.metric not in COSTS:
        bytes_needed = results.model_bytes(entry)
        needs.append(f"{count(parameters)} parameters" + (f" ({size(bytes_needed)})" if bytes_needed else ""))
    state = results.state_bytes(entry)
    if state is not None and context is not None:
        needs.append(f"{size(state)} of state after {context:,} tokens")
    if flops := results.mean(entry, lambda run: run.flops_per_token):
        needs.append(f"{count(flops)} FLOPs per token")
    if not needs:
        return ""
    sentence = f"{named(entry)} needs {listed(needs)}"
    if not has_spread(ranking):
        return f"{sentence}."
    group = next(group for group in ranking.groups if entry in group)
    tied = {name: bytes_of for name in group if name != entry and (bytes_of := results.state_bytes(name))}
    smallest = min(tied, key=tied.__getitem__, default=None)
    if smallest is not None and state and tied[smallest] < _LESS * state:
        less = size(tied[smallest])
        return f"{sentence}; {named(smallest)} is statistically tied with it and needs only {less} of state."
    return f"{sentence}."


def _price_of_form(results: Results, ranking: Ranking) -> str:
    """State bytes of the entries that solve the task: those that grow, and the smallest of fixed size."""
    context, solved = results.stated_context(), solved_by(results, ranking)
    states = {
        standing.entry: bytes_of
        for standing in ranking.standings
        if results.form(standing.entry) in solved and (bytes_of := results.state_bytes(standing.entry))
    }
    if context is None or not states:
        return ""
    growing = [name for name in states if grows(results, name)]
    fixed = [name for name in states if name not in growing]
    said = []
    if growing:
        said.append(f"{named(growing[0])} keeps {size(states[growing[0]])}, more with every token")
    if fixed:
        least = min(fixed, key=states.__getitem__)
        said.append(f"{named(least)} keeps {size(states[least])} at any length")
    rest = next((standing.entry for standing in ranking.standings if results.form(standing.entry) not in solved), None)
    against = results.state_bytes(rest) if rest is not None else None
    said += [f"{named(rest)}, the best of the others, keeps {size(against)}"] if rest is not None and against else []
    return f"The cost is state: after {context:,} tokens {'; '.join(said)}."


def grows(results: Results, entry: str) -> bool:
    """Whether the state is larger after more tokens, as measured."""
    known = [run.state_bytes for run in results.final[entry] if len(run.state_bytes) > 1]
    return any(table[max(table)] > table[min(table)] for table in known)


def front(results: Results, ranking: Ranking) -> str:
    """The best entry for its size: of the model where sizes differ, else of the state."""
    if separates_forms(results, ranking):
        return best_sentence(results, ranking)
    means = {standing.entry: standing.mean for standing in ranking.standings}
    costs: dict[str, Mapping[str, float]] = {
        "model size": {name: value for name in means if (value := results.model_bytes(name))},
        "state size": {name: value for name in means if (value := results.state_bytes(name))},
    }
    for what, of in costs.items():
        names = pareto({name: (cost, means[name]) for name, cost in of.items()}, results.study.better)
        if len(names) < 2 or results.study.metric in COSTS:
            continue
        kept = listed([f"{named(name)} ({size(of[name])})" for name in names[:_NAMED]])
        return f"Pareto-optimal in {results.metric} and {what}: {kept}."
    return ""


# -------------------------------------------------------------------- words


def has_spread(ranking: Ranking) -> bool:
    """Whether any entry has several seeds, so that differences can be tested."""
    return any(len(standing.figures) > 1 for standing in ranking.standings)


def score_text(standing: Standing) -> str:
    """`2.314 ± 0.021`; without an interval where there is one seed, or all give the same."""
    if standing.t_interval is None or standing.deviation == 0:
        return plain(standing.mean)
    return with_interval(standing.mean, standing.t_interval[1] - standing.mean)


def margin(score: float, other: float, results: Results) -> str:
    """`0.12 (5.1 %) better than`; of shares, and of differences larger than the other score, without a percentage."""
    worse = (score > other) == (results.study.better == "lower")
    small = abs(score - other) <= abs(other) and not results.share
    relative = f" ({share(abs(score - other) / abs(other))})" if small and other else ""
    return f"{rough(abs(score - other))}{relative} {'worse' if worse else 'better'} than"


def few(names: Sequence[str]) -> list[str]:
    """At most as many names as a sentence can carry."""
    called = [named(name) for name in names]
    return called if len(called) <= _NAMED else [*called[: _NAMED - 1], f"{len(called) - _NAMED + 1} others"]


def named(entry: str) -> str:
    """A name inside a sentence, in quotes where it has a comma or more than two words."""
    return f"“{entry}”" if "," in entry or entry.count(" ") > 1 else entry


def listed(names: Sequence[str], *, last: str = "and") -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {last} {names[-1]}"
