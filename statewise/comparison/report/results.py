"""The results of one study, entry by entry: the one place that sorts trials before they are reported."""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from statistics import fmean
from typing import NamedTuple

from statewise.comparison.budget import Entry
from statewise.comparison.report.lineage import form_of, kinds
from statewise.comparison.statistics import Better
from statewise.comparison.trial import Failure, Found
from statewise.figures import Scale
from statewise.specs import StudySpec
from statewise.tasks import metric_of

WIDE = 8.0  # ratio of the largest to the smallest value from which on an axis is logarithmic
SAME = 1.05  # ratio up to which values count as equal: a plot against them would show nothing


class Results(NamedTuple):
    """`order`: the entries as the study lists them, those without a result included."""

    part: str  # the name of the study
    alone: bool  # whether it is the only one of its report
    study: StudySpec
    order: tuple[str, ...]
    kinds: dict[str, str]  # model kinds, of entries whose model is known
    final: dict[str, list[Found]]  # by seed; only entries that have some
    search: list[Found]
    failures: list[Failure]
    unmatched: frozenset[str]  # entries outside the budget: without a width to solve for, or not trained by gradient

    @property
    def done(self) -> list[str]:
        return [name for name in self.order if name in self.final]

    @property
    def metric(self) -> str:
        return metric_of(self.study.metric).label

    @property
    def share(self) -> bool:
        """Whether the metric is between 0 and 1."""
        return metric_of(self.study.metric).share

    def figure_name(self, name: str) -> str:
        """An identifier that no figure of another study of the report has."""
        return name if self.alone else f"{self.part}-{name}"

    def form(self, entry: str) -> str:
        """What the state of an entry is, in a word."""
        return form_of(self.kinds.get(entry))

    @property
    def several(self) -> bool:
        """Whether any entry has more than one seed, so that there is a spread to show."""
        return any(len(runs) > 1 for runs in self.final.values())

    @property
    def scale(self) -> Scale:
        """Of an axis with the metric: logarithmic where lower is better and values span magnitudes."""
        seen = [value for name in self.done for value in self.scores(name)]
        wide = self.study.better == "lower" and min(seen, default=0.0) > 0 and max(seen) > WIDE * min(seen)
        return "log" if wide else "linear"

    @property
    def anchors(self) -> dict[str, float]:
        """Trivial predictors and their score, the mean over all trials that have it."""
        told: dict[str, list[float]] = {}
        for runs in self.final.values():
            for run in runs:
                for name, value in run.anchors.items():
                    told.setdefault(name, []).append(value)
        return {name: fmean(values) for name, values in told.items()}

    def scores(self, entry: str) -> list[float]:
        """The study's metric, a value per seed."""
        return [run.figures[self.study.metric] for run in self.final[entry]]

    def also(self) -> dict[str, list[str]]:
        """The study's other metrics: of each what the trials have of it, of a table one for each of its numbers."""
        there = {name for runs in self.final.values() for run in runs for name in run.figures}
        inside = {
            table: sorted(
                (name for name in there if name.startswith(f"{table}.")), key=lambda name: int(name.rpartition(".")[2])
            )
            for table in self.study.also
        }
        return {name: [name] if name in there else inside[name] for name in self.study.also}

    def learned(self) -> bool:
        """Whether there are learning curves: a study of costs has none."""
        return any(run.curve or run.watched for runs in self.final.values() for run in runs)

    def watched(self) -> list[str]:
        """Validation metrics besides the study's own that any entry has a curve of."""
        return sorted({name for runs in self.final.values() for run in runs for name in run.watched})

    def mean(self, entry: str, of: Callable[[Found], float | None]) -> float | None:
        """Over the seeds that have it."""
        values = [value for run in self.final[entry] if (value := of(run)) is not None and math.isfinite(value)]
        return fmean(values) if values else None

    def model_bytes(self, entry: str) -> float | None:
        """Bytes of everything it needs to predict; None where that was not measured."""
        return self.mean(entry, lambda run: float(run.model_bytes)) or None

    def state_bytes(self, entry: str, context: int | None = None) -> float | None:
        """Bytes of state after so many tokens, by default those that the table states."""
        at = self.stated_context() if context is None else context
        return self.mean(entry, lambda run: float(run.state_bytes[at]) if at in run.state_bytes else None)

    def contexts(self) -> list[int]:
        return sorted({context for runs in self.final.values() for run in runs for context in run.state_bytes})

    def stated_context(self) -> int | None:
        """The context at which the table gives state bytes: that of the budget, or the nearest measured one."""
        wanted = self.study.budget.context
        return min(self.contexts(), key=lambda context: abs(context - wanted), default=None)

    def missing(self) -> list[str]:
        """Seeds that have not finished, and what to do about them."""
        seeds, said, left = self.study.seeds, [], False
        for name in self.order:
            failed = [failure for failure in self.failures if failure.entry == name and failure.phase == "final"]
            have = len(self.final.get(name, []))
            if have < seeds:
                left = left or have + len(failed) < seeds
                why = f", {len(failed)} failed" if failed else ""
                count = "none" if have == 0 else f"only {have}"
                said.append(f"{name}: {count} of {seeds} {'seed' if seeds == 1 else 'seeds'} finished{why}.")
        return [*said, "Run the command at the end of this page again to finish the missing trials."] if left else said


def possible(metric: str, value: float) -> float:
    """The value, clipped to [0, 1] for a share: the interval of its mean may reach beyond."""
    return min(max(value, 0.0), 1.0) if metric_of(metric).share else value


def differ(sizes: Sequence[float]) -> bool:
    """Whether a plot against these sizes shows something: there are three of them or more, or as many as values.

    >>> differ([60_000, 60_100, 60_200, 90_000]), differ([60_000, 90_000])
    (False, True)
    """
    ordered = sorted(sizes)
    steps = sum(larger > SAME * smaller for smaller, larger in pairwise(ordered))
    return len(sizes) > 1 and steps + 1 >= min(3, len(sizes))


def pareto(costs_and_scores: Mapping[str, tuple[float, float]], better: Better) -> list[str]:
    """Names that no other beats in cost or score without losing in the other, the cheapest first; costs that differ by
    less than `SAME` count as equal.

    >>> pareto({"a": (1.0, 3.0), "b": (2.0, 2.0), "c": (3.0, 2.5)}, "lower")
    ['a', 'b']
    """
    sign = 1 if better == "lower" else -1
    points = {name: (cost, sign * score) for name, (cost, score) in costs_and_scores.items()}
    front = [
        name
        for name, (cost, score) in points.items()
        if not any(
            (other[0] <= SAME * cost and other[1] < score) or (SAME * other[0] < cost and other[1] <= score)
            for other in points.values()
        )
    ]
    return sorted(front, key=lambda name: points[name])


def sort(
    study: StudySpec,
    entries: Sequence[Entry],
    measured: Sequence[Found],
    failures: Sequence[Failure],
    *,
    part: str = "",
    alone: bool = True,
) -> Results:
    """A result whose metric is absent or not finite counts as a failure, and is listed as one."""
    names = [entry.name for entry in entries] or [entry.name for entry in study.entry]
    order = list(dict.fromkeys([*names, *(run.entry for run in measured)]))
    known = [run for run in measured if math.isfinite(run.figures.get(study.metric, math.nan))]
    without = [
        Failure(run.key, run.entry, run.seed, run.phase, f"no finite {study.metric!r}", True)
        for run in measured
        if run not in known
    ]
    final = {
        name: sorted((run for run in known if run.entry == name and run.phase == "final"), key=lambda run: run.seed)
        for name in order
    }
    return Results(
        part=part,
        alone=alone,
        study=study,
        order=tuple(order),
        kinds=kinds(entries, order),
        final={name: runs for name, runs in final.items() if runs},
        search=[run for run in known if run.phase == "search"],
        failures=[*failures, *without],
        unmatched=frozenset(entry.name for entry in entries if len(entry.held) < len(study.budget.held())),
    )
