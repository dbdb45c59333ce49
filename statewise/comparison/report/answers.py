"""The same held-out rows as every entry answered them, the most disputed first; and a forecast of each."""

from typing import NamedTuple

from statewise.comparison.report.results import Results
from statewise.comparison.report.verdict import few, listed, named
from statewise.display import plain
from statewise.figures import Axis, Figure, Series
from statewise.tasks import Answer, Course

_SHOWN = 12


class Asked(NamedTuple):
    """One row, its true answer, and the answer of each entry."""

    given: str
    truth: str
    answers: dict[str, str]

    @property
    def right(self) -> list[str]:
        return [entry for entry, answer in self.answers.items() if answer == self.truth]


def disputed(results: Results) -> list[Asked]:
    """Of a seed that all entries have, so that all saw the same rows; rows that about half get right come first."""
    answers = _of_one_seed(results)
    shared = [row for row in next(iter(answers.values()), {}) if all(row in table for table in answers.values())]
    rows = [
        Asked(given, truth, {entry: answers[entry][given, asked, truth] for entry in answers})
        for given, asked, truth in shared
    ]
    return sorted(rows, key=lambda row: abs(2 * len(row.right) - len(row.answers)))[:_SHOWN]


def _of_one_seed(results: Results) -> dict[str, dict[tuple[str, str, str], str]]:
    known = {name: {run.seed: run.answers for run in results.final[name] if run.answers} for name in results.done}
    known = {name: seeds for name, seeds in known.items() if seeds}
    shared = set.intersection(*(set(seeds) for seeds in known.values())) if known else set()
    if not shared:
        return {}
    return {name: _by_question(seeds[min(shared)]) for name, seeds in known.items()}


def _by_question(answers: list[Answer]) -> dict[tuple[str, str, str], str]:
    return {(answer.given, answer.asked, answer.truth): answer.answer for answer in answers}


def answered(asked: list[Asked]) -> str:
    if not asked:
        return ""
    split = [answer for answer in asked if 0 < len(answer.right) < len(answer.answers)]
    if not split:
        alike = "right" if asked[0].right else "wrong"
        return f"The entries agree on all rows that were kept: on the rows below all are {alike}."
    return (
        f"Held-out rows, the most disputed first: on {len(split)} of these {len(asked)} some entries are right and "
        "others wrong. Right answers are marked."
    )


def courses(results: Results) -> list[Figure]:
    """The forecast of each entry for the same stretch, beside the observed values."""
    runs = {name: next((run.course for run in results.final[name] if run.course), None) for name in results.done}
    told = {name: course for name, course in runs.items() if course is not None}
    if not told:
        return []
    first = next(iter(told.values()))
    same = {name: course for name, course in told.items() if course.name == first.name}
    apart = {name: _mean_squared(course) for name, course in same.items()}
    nearest = min(apart, key=apart.__getitem__)
    begin = -len(first.past)
    came = _series("observed", begin, [*first.past, *first.truth])
    series = [_series(name, 0, course.forecast)._replace(entry=name) for name, course in same.items()]
    left = [name for name in results.done if name not in same]
    return [
        Figure(
            name=results.figure_name("forecast"),
            title=f"Forecasts of {first.name}",
            kind="line",
            x=Axis("steps ahead (0: first forecast)"),
            y=Axis("value, in the unit of the data"),
            series=(*series, came),
            reading="Left of 0: what the models had read; from 0 on: forecasts beside the observed values.",
            finding=f"On this stretch {named(nearest)} has the smallest error (RMSE {plain(apart[nearest] ** 0.5)}); "
            "one stretch is an example, not a ranking.",
            missing=(f"No forecast of this stretch: {listed(few(left))}.",) if left else (),
        )
    ]


def _series(name: str, begin: int, values: list[float | None]) -> Series:
    there = [(float(begin + at), value) for at, value in enumerate(values) if value is not None]
    return Series(name, tuple(x for x, _ in there), tuple(y for _, y in there))


def _mean_squared(course: Course) -> float:
    pairs = [(a, b) for a, b in zip(course.truth, course.forecast) if a is not None and b is not None]
    return sum((a - b) ** 2 for a, b in pairs) / max(len(pairs), 1)
