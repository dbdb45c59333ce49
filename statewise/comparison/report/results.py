"""What was found, entry by entry: the one place that sorts trials before they are written about."""

import math
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean
from typing import NamedTuple

from statewise.comparison.statistics import Better
from statewise.comparison.trial import Failure, Found
from statewise.figures.figure import Scale
from statewise.specs.study import StudySpec

WIDE = 8.0  # how far values may lie apart before their axis is a logarithm
# The validation figures of which more is better; of all others, less is.
HIGHER = frozenset({"accuracy", "root_accuracy", "node_accuracy", "span_f1", "bleu", "exact", "length_exact"})
# Of a share, a difference is said as it is: a percentage of a percentage confuses.
SHARES = HIGHER - {"bleu"} | {"macro_f1", "new_word_accuracy"}
UNITS = {
    "bits_per_byte": "bits per byte",
    "nats_per_token": "nats per token",
    "bits_per_token": "bits per token",
    "perplexity": "perplexity",
    "accuracy": "accuracy",
    "root_accuracy": "accuracy at the root",
    "node_accuracy": "accuracy over nodes",
    "length_exact": "share of right lengths",
    "exact": "share of exact matches",
    "span_f1": "F1 of spans",
    "macro_f1": "macro F1",
    "nats": "nats",
    "bleu": "BLEU",
    "chrf": "chrF",
    "ter": "TER",
    "mse": "MSE",
    "mae": "MAE",
    "milliseconds_per_token": "ms per token",
    "state_bytes": "bytes of state",
}


class Results(NamedTuple):
    """`order`: the entries as the study lists them, those without a result included."""

    study: StudySpec
    order: tuple[str, ...]
    final: dict[str, list[Found]]  # by seed; only entries that have some
    search: list[Found]
    failures: list[Failure]
    unheld: frozenset[str]  # entries for which a budget does not hold: without a size, or counting

    @property
    def done(self) -> list[str]:
        return [name for name in self.order if name in self.final]

    @property
    def metric(self) -> str:
        return called(self.study.metric)

    @property
    def several(self) -> bool:
        """Whether any entry has more than one seed, so that there is a spread to show."""
        return any(len(runs) > 1 for runs in self.final.values())

    @property
    def scale(self) -> Scale:
        """Of an axis with the metric on it: where it spans magnitudes and less is better, a logarithm."""
        seen = [value for name in self.done for value in self.figures(name)]
        wide = self.study.better == "lower" and min(seen, default=0.0) > 0 and max(seen) > WIDE * min(seen)
        return "log" if wide else "linear"

    @property
    def anchors(self) -> dict[str, float]:
        """What next to no learning gets of the metric, the mean over all that were told of it."""
        told: dict[str, list[float]] = {}
        for runs in self.final.values():
            for one in runs:
                for name, value in one.anchors.items():
                    told.setdefault(name, []).append(value)
        return {name: fmean(values) for name, values in told.items()}

    def figures(self, entry: str) -> list[float]:
        """The study's metric, a value a seed."""
        return [one.figures[self.study.metric] for one in self.final[entry]]

    def learned(self) -> bool:
        """Whether there is anything to show of a training: a study of costs has none."""
        return any(one.curve or one.watched for runs in self.final.values() for one in runs)

    def watched(self) -> list[str]:
        """The validation figures besides the metric, as far as any entry has a curve of them."""
        return sorted({name for runs in self.final.values() for one in runs for name in one.watched})

    def mean(self, entry: str, of: Callable[[Found], float | None]) -> float | None:
        """Over the seeds that have it."""
        values = [value for one in self.final[entry] if (value := of(one)) is not None and math.isfinite(value)]
        return fmean(values) if values else None

    def contexts(self) -> list[int]:
        return sorted({context for runs in self.final.values() for one in runs for context in one.state_bytes})

    def stated_context(self) -> int | None:
        """The context the table states state bytes at: that of the budget, or the nearest one measured."""
        wanted = self.study.budget.context
        return min(self.contexts(), key=lambda context: abs(context - wanted), default=None)

    def missing(self) -> list[str]:
        """What the study asked for and the report does not have."""
        seeds, said, left = self.study.seeds, [], False
        for name in self.order:
            failed = [one for one in self.failures if one.entry == name and one.phase == "final"]
            have = len(self.final.get(name, []))
            if have < seeds:
                left = left or have + len(failed) < seeds
                why = f", {len(failed)} failed" if failed else ""
                count = "none" if have == 0 else f"only {have}"
                said.append(f"{name}: {count} of {seeds} {'seed' if seeds == 1 else 'seeds'} finished{why}.")
        return [*said, "The command at the end, run again, goes on with what is missing."] if left else said


def possible(metric: str, value: float) -> float:
    """A share lies between nothing and all, however far the interval of its mean reaches."""
    return min(max(value, 0.0), 1.0) if metric in SHARES else value


def called(metric: str) -> str:
    """A figure's name in a sentence."""
    return UNITS.get(metric, metric.replace("_", " "))


def better(metric: str) -> Better:
    """Which end of a validation figure is the good one."""
    return "higher" if metric in HIGHER else "lower"


def sort(
    study: StudySpec,
    names: Iterable[str],
    found: Sequence[Found],
    failures: Sequence[Failure],
    *,
    unheld: Iterable[str] = (),
) -> Results:
    """A result whose metric is absent or not finite counts as a failure, and is said to be one."""
    order = list(dict.fromkeys([*names, *(one.entry for one in found)]))
    known = [one for one in found if math.isfinite(one.figures.get(study.metric, math.nan))]
    without = [
        Failure(one.key, one.entry, one.seed, one.phase, f"it has no finite {study.metric!r}", True)
        for one in found
        if one not in known
    ]
    final = {
        name: sorted((one for one in known if one.entry == name and one.phase == "final"), key=lambda one: one.seed)
        for name in order
    }
    return Results(
        study=study,
        order=tuple(order),
        final={name: runs for name, runs in final.items() if runs},
        search=[one for one in known if one.phase == "search"],
        failures=[*failures, *without],
        unheld=frozenset(unheld),
    )
