"""The exposure gap of a run, for people and for machines."""

from typing import Any

import numpy as np
from torch import Tensor

from statewise.tasks.report import Report
from statewise.training import ExposureGap

_LINES = 8  # of the table, for each of the stretches


def exposure_figures(gap: ExposureGap, *, unit: str) -> dict[str, Any]:
    """Every position, and the means over the model's own stretch and over the truth after it."""
    foreign = None if gap.foreign_T is None else gap.foreign_T.tolist()
    inside, after = _stretches(gap)
    return {
        "unit": unit,
        "prefix": gap.prefix,
        "own": gap.own,
        "inside": _mean(gap.gap_T, gap.count_T, inside),
        "after": _mean(gap.gap_T, gap.count_T, after),
        "excess_inside": None if foreign is None else _mean(gap.excess_T, gap.count_T, inside),
        "excess_after": None if foreign is None else _mean(gap.excess_T, gap.count_T, after),
        "count_T": gap.count_T.tolist(),
        "teacher_T": gap.teacher_T.tolist(),
        "own_T": gap.own_T.tolist(),
        "foreign_T": foreign,
        "gap_T": gap.gap_T.tolist(),
    }


def exposure_report(gap: ExposureGap, *, unit: str) -> Report:
    """A few positions to a line; the first line is what came before the model read itself."""
    time = len(gap.count_T)
    inside, after = _stretches(gap)
    lines = [("truth", range(gap.prefix))]
    for name, places in (("own", inside), ("again truth", after)):
        parts = np.array_split(np.arange(places.start, places.stop), min(_LINES, len(places))) if len(places) else []
        lines += [(name, range(int(part[0]), int(part[-1]) + 1)) for part in parts]
    rows = []
    for name, places in lines:
        where = f"{places.start + 1}" if len(places) == 1 else f"{places.start + 1} to {places.stop}"
        foreign = ("", "")
        if gap.foreign_T is not None:
            foreign = (_cell(gap.foreign_T, gap.count_T, places), _cell(gap.excess_T, gap.count_T, places))
        rows.append(
            (
                f"{where}: {name}",
                _cell(gap.teacher_T, gap.count_T, places),
                _cell(gap.own_T, gap.count_T, places),
                _cell(gap.gap_T, gap.count_T, places),
                *foreign,
            )
        )
    note = (
        f"mean {unit} at the true targets of {int(gap.count_T.max()):,} rows, {time:,} positions · "
        "gap: own - truth · excess: own - foreign, above 0 where its own output misleads it"
    )
    columns = ("truth read", "own read", "gap", "foreign read", "excess")
    return Report(columns, tuple(rows), own=-1, note=note)


def _stretches(gap: ExposureGap) -> tuple[range, range]:
    return range(gap.prefix, gap.prefix + gap.own), range(gap.prefix + gap.own, len(gap.count_T))


def _mean(values_T: Tensor, count_T: Tensor, places: range) -> float | None:
    """Over the rows and positions of a stretch; None where there are none."""
    some = slice(places.start, places.stop)
    total = int(count_T[some].sum())
    return float((values_T[some] * count_T[some]).sum()) / total if total else None


def _cell(values_T: Tensor, count_T: Tensor, places: range) -> str:
    means = _mean(values_T, count_T, places)
    return "" if means is None else f"{means:.3f}"
