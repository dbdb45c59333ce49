"""Statistics over seeds: intervals, paired tests, and a ranking that marks ties.

N seeds, K entries.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
import torch

from statewise.comparison.trial import Found
from statewise.kernels import student_t
from statewise.specs import UserError, nearest

Better = Literal["lower", "higher"]
Interval = tuple[float, float]
_CONFIDENCE = 0.95  # of intervals, and of tests together


class Standing(NamedTuple):
    """One entry over its seeds. With one seed there is a figure, and no interval."""

    entry: str
    seeds: tuple[int, ...]
    figures: tuple[float, ...]
    mean: float
    deviation: float | None
    t_interval: Interval | None
    failed: int  # seeds that did not end, or not in a number
    deterministic: bool = False  # a seed changes nothing: the metric is the same every time


class Comparison(NamedTuple):
    """Two entries on the seeds they share. `difference` is the mean of first minus second."""

    first: str
    second: str
    difference: float
    p: float | None  # corrected by Holm over all pairs; None: nothing varies
    distinguishable: bool


class Ranking(NamedTuple):
    """Best first. Entries of one group are not distinguishable from the best of that group."""

    standings: list[Standing]
    groups: list[list[str]]
    comparisons: list[Comparison]
    method: str  # in words

    def group(self, entry: str) -> int:
        """Which group an entry is in, from 1."""
        return next(i for i, names in enumerate(self.groups, start=1) if entry in names)

    def between(self, first: str, second: str) -> Comparison:
        return next(each for each in self.comparisons if {each.first, each.second} == {first, second})


def standing(entry: str, figures: Mapping[int, float | None], *, deterministic: bool = False) -> Standing:
    """`figures` by seed; None or not finite: that seed failed."""
    there = {seed: float(x) for seed, x in sorted(figures.items()) if x is not None and math.isfinite(x)}
    values = tuple(there.values())
    return Standing(
        entry=entry,
        seeds=tuple(there),
        figures=values,
        mean=float(np.mean(values)) if values else math.nan,
        deviation=float(np.std(values, ddof=1)) if len(values) > 1 else None,
        t_interval=t_interval(values),
        failed=len(figures) - len(values),
        deterministic=deterministic,
    )


def standings(runs: Sequence[Found], *, metric: str, entries: Sequence[str] | None = None) -> list[Standing]:
    """Of every entry with a final trial, in the order of `entries` (default: of `found`)."""
    final = [run for run in runs if run.phase == "final"]
    for run in final:
        if run.figures and metric not in run.figures:
            raise UserError(
                f"{run.entry!r} has no {metric!r}, so it cannot be ranked by it", fix=nearest(metric, run.figures)
            )
    names = list(entries or dict.fromkeys(run.entry for run in final))
    by_seed = {name: {run.seed: run.figures.get(metric) for run in final if run.entry == name} for name in names}
    same = {
        name: [(run.weights_sha256, run.figures.get(metric)) for run in final if run.entry == name] for name in names
    }
    return [
        standing(name, by_seed[name], deterministic=len(same[name]) > 1 == len(set(same[name])))
        for name in names
        if by_seed[name]
    ]


def ranking(
    runs: Sequence[Found],
    *,
    metric: str,
    better: Better,
    entries: Sequence[str] | None = None,
) -> Ranking:
    """An order of the entries, and which of them the seeds cannot tell apart.

    Seeds are blocks, entries treatments, and one spread is estimated from all of them, so that two seeds of many
    entries already say something; it takes the spread to be alike.
    """
    unsorted = [standing for standing in standings(runs, metric=metric, entries=entries) if standing.figures]
    ordered = sorted(unsorted, key=lambda standing: standing.mean if better == "lower" else -standing.mean)
    comparisons = compare(ordered)
    groups: list[list[str]] = []
    apart = {frozenset((pair.first, pair.second)) for pair in comparisons if pair.distinguishable}
    for standing in ordered:
        if groups and frozenset((groups[-1][0], standing.entry)) not in apart:
            groups[-1].append(standing.entry)
        else:
            groups.append([standing.entry])
    return Ranking(ordered, groups, comparisons, _method(ordered))


def compare(standings: Sequence[Standing]) -> list[Comparison]:
    """All pairs. One that the fit of all entries says nothing of is judged by its own differences."""
    pooled = pooled_p(standings)
    pairs = list(itertools.combinations(range(len(standings)), 2))
    differences, p_values = [], []
    for i, j in pairs:
        first, second = (dict(zip(standings[k].seeds, standings[k].figures)) for k in (i, j))
        gaps = [first[seed] - second[seed] for seed in sorted(first.keys() & second.keys())]
        differences.append(float(np.mean(gaps)) if gaps else standings[i].mean - standings[j].mean)
        p_values.append(pooled[i, j] if (i, j) in pooled else paired_t(gaps))
    return [
        Comparison(
            standings[i].entry, standings[j].entry, difference, p, distinguishable=p is not None and p < 1 - _CONFIDENCE
        )
        for (i, j), difference, p in zip(pairs, differences, holm(p_values))
    ]


def _method(standings: Sequence[Standing]) -> str:
    most = max((len(standing.figures) for standing in standings), default=0)
    if most == 0:
        return ""
    if most < 2:
        return "One seed per model: differences cannot be tested, the order is that of single runs."
    test = f"paired t-tests across seeds, pooled variance, Holm-corrected, {_CONFIDENCE:.0%}".replace("%", " %")
    return f"Models in the same group are statistically tied with its best ({test})."


# -------------------------------------------------------------------- intervals


def t_interval(values: Sequence[float], *, confidence: float = _CONFIDENCE) -> Interval | None:
    """`mean ± t · s / √N`; None for fewer than two values."""
    if len(values) < 2:
        return None
    half = _quantile(0.5 + confidence / 2, len(values) - 1) * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    mean = float(np.mean(values))
    return mean - half, mean + half


# -------------------------------------------------------------------- tests


def paired_t(differences: Sequence[float]) -> float | None:
    """Two-sided p-value of a mean difference of 0. None for fewer than two pairs, or where nothing varies."""
    if len(differences) < 2:
        return None
    deviation = float(np.std(differences, ddof=1))
    mean = float(np.mean(differences))
    if _is_nothing(deviation, mean, differences):
        return None
    return _two_sided(mean * math.sqrt(len(differences)) / deviation, len(differences) - 1)


def pooled_p(standings: Sequence[Standing]) -> dict[tuple[int, int], float]:
    """Two-sided p-values of all pairs from one least-squares fit: metric = entry + seed + noise.

    Some seeds of some entries may be missing. Pairs are left out where the fit has nothing left to judge noise by.
    Deterministic entries have no seed variance, so they are left out of the fit.
    """
    varying = [standing for standing in standings if not standing.deterministic]
    place = {at: k for k, at in enumerate(at for at, standing in enumerate(standings) if not standing.deterministic)}
    fitted = _fitted_p(varying)
    pairs = {(i, j): fitted[place[i], place[j]] for i in place for j in place if (place[i], place[j]) in fitted}
    for i, j in itertools.combinations(range(len(standings)), 2):
        if standings[i].deterministic or standings[j].deterministic:
            p = _deterministic_p(standings[i], standings[j], varying)
            pairs |= {} if p is None else {(i, j): p}
    return pairs


def _deterministic_p(standing: Standing, other: Standing, varying: Sequence[Standing]) -> float | None:
    """Against a deterministic entry: the other's mean, with the variance of all entries about their means."""
    if standing.deterministic and other.deterministic:
        return 0.0 if standing.mean != other.mean else None
    noisy, sure = (other, standing) if standing.deterministic else (standing, other)
    freedom = sum(len(each.figures) - 1 for each in varying if each.figures)
    if freedom < 1 or not noisy.figures:
        return None
    squares = sum((x - each.mean) ** 2 for each in varying for x in each.figures)
    deviation = math.sqrt(squares / freedom / len(noisy.figures))
    difference = noisy.mean - sure.mean
    return None if _is_nothing(deviation, difference, noisy.figures) else _two_sided(difference / deviation, freedom)


def _fitted_p(standings: Sequence[Standing]) -> dict[tuple[int, int], float]:
    seeds = sorted({seed for standing in standings for seed in standing.seeds})
    rows = [
        (k, seeds.index(seed), x)
        for k, standing in enumerate(standings)
        for seed, x in zip(standing.seeds, standing.figures)
    ]
    if len(standings) < 2 or len(seeds) < 2:
        return {}
    design_RP = np.zeros((len(rows), len(standings) + len(seeds)))
    for row, (k, n, _) in enumerate(rows):
        design_RP[row, k] = design_RP[row, len(standings) + n] = 1.0
    figure_R = np.array([x for _, _, x in rows])
    inverse_PR = np.linalg.pinv(design_RP)
    rank = int(np.linalg.matrix_rank(design_RP))
    freedom = len(rows) - rank
    if freedom < 1:
        return {}
    effect_P = inverse_PR @ figure_R
    residual_R = figure_R - design_RP @ effect_P
    variance = float(residual_R @ residual_R) / freedom
    p_values = {}
    for i, j in itertools.combinations(range(len(standings)), 2):
        if not set(standings[i].seeds) & set(standings[j].seeds):
            continue
        contrast_P = np.zeros(design_RP.shape[1])
        contrast_P[i], contrast_P[j] = 1.0, -1.0
        weight_R = contrast_P @ inverse_PR
        deviation = math.sqrt(variance * float(weight_R @ weight_R))
        difference = float(contrast_P @ effect_P)
        if not _is_nothing(deviation, difference, figure_R.tolist()):
            p_values[i, j] = _two_sided(difference / deviation, freedom)
    return p_values


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm's step-down correction: the chance that any of them is wrong is kept. None stays, and is not counted."""
    there = sorted((p, i) for i, p in enumerate(p_values) if p is not None)
    corrected: list[float | None] = [None] * len(p_values)
    highest = 0.0
    for rank, (p, i) in enumerate(there):
        highest = max(highest, min(1.0, (len(there) - rank) * p))
        corrected[i] = highest
    return corrected


def _is_nothing(deviation: float, mean: float, values: Sequence[float]) -> bool:
    """Rounding is not noise: what does not vary cannot be tested."""
    size = max((abs(value) for value in values), default=0.0)
    return deviation <= 1e-12 * max(size, abs(mean))


def _two_sided(t: float, freedom: int) -> float:
    below = student_t.cdf(torch.tensor(-abs(t), dtype=torch.float64), torch.tensor(float(freedom)))
    return float(2 * below)


def _quantile(q: float, freedom: int) -> float:
    return float(student_t.quantile(torch.tensor(q, dtype=torch.float64), torch.tensor(float(freedom))))
