"""A published result as data: what was published, what we aim at, what we got, and on which files."""

import statistics
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from statewise.specs.base import Paths, Spec

_INTERVAL_SEEDS = 3  # fewer give no interval
_T_QUANTILES = {3: 4.3027, 4: 3.1824, 5: 2.7764}  # of Student's t at 97.5 %, for as many runs
_LAST_QUANTILE = 2.5706  # six runs; more have a lower one
_LEAST_REACH = 0.005  # share of the mean: other hardware rounds otherwise


class PublishedFigure(Spec):
    figure: float
    source: str
    verified: bool = Field(True, description="false: quoted from elsewhere, not read in the source itself")
    measured: str = Field("", description="what it was measured on, where that is not what is measured here")


class Goal(Spec):
    figure: float
    why: str = ""


class OurResult(Spec):
    figures: tuple[float, ...] = Field(min_length=1, description="the metric of each seed's run, from seed 0 on")

    @property
    def seeds(self) -> int:
        return len(self.figures)

    @property
    def figure(self) -> float:
        return statistics.fmean(self.figures)

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % prediction interval of one more run, at least half a percent of the mean on either side."""
        if self.seeds < _INTERVAL_SEEDS:
            return None
        quantile = _T_QUANTILES.get(self.seeds, _LAST_QUANTILE)
        reach = quantile * statistics.stdev(self.figures) * (1 + 1 / self.seeds) ** 0.5
        reach = max(reach, _LEAST_REACH * abs(self.figure))
        return self.figure - reach, self.figure + reach

    def __str__(self) -> str:
        """The mean with four digits, and the standard deviation of three or more."""
        if self.seeds < _INTERVAL_SEEDS:
            return f"{self.figure:.4g}"
        deviation = statistics.stdev(self.figures)
        return f"{self.figure:.4g} ± {min(f'{deviation:.1g}', f'{deviation:.0e}', key=len)}"


class ReproductionSpec(Spec):
    """The table `[reproduction]` of a recipe. Files are named by patterns within the folder a user brings."""

    metric: str = Field(description="a metric of the task's evaluation")
    better: Literal["lower", "higher"]
    published: PublishedFigure | None = None
    goal: Goal | None = Field(None, description="what we aim at, where nothing comparable was published or beside it")
    ours: OurResult | None = None
    expected: tuple[float, float] | None = Field(
        None, description="where a run of this recipe should land, by judgement: fewer than three seeds were run"
    )
    cost: str = Field("", description="what it took, and on what")
    files: dict[str, Paths] = Field(
        description="a setting, and the file (`name/`: folder) it takes: patterns, the first that fits; none: the "
        "data are embedded"
    )
    evaluate: tuple[Paths, ...] = Field((), description="files of the final evaluation; none: what is held out")
    sha256: tuple[str, ...] = Field(
        (), description="how those of `files` and `evaluate` begin, in their order, unpacked: they tell other data"
    )
    elsewhere: dict[str, Any] = Field({}, description="settings on other data, for what is a fact of these alone")

    @model_validator(mode="after")
    def _has_something_to_reach(self) -> Self:
        if self.published is None and self.goal is None:
            raise ValueError("a reproduction needs a published figure or a goal")
        return self

    @property
    def interval(self) -> tuple[float, float] | None:
        """Where a run of this recipe should land: as three or more seeds tell, else by judgement."""
        return (self.ours and self.ours.interval) or self.expected

    @property
    def expected_from(self) -> str | None:
        """What the expected interval rests on."""
        if self.interval is None:
            return None
        if self.ours is not None and self.ours.interval is not None:
            return f"95 % prediction interval of {self.ours.seeds} seeds"
        return "one run, widened by judgement"

    @property
    def status(self) -> str:
        """What our own result is worth."""
        if self.ours is None:
            return "no result recorded"
        if self.published is None:
            assert self.goal is not None
            return "goal reached" if self.reaches(self.ours.figure, self.goal.figure) else "goal not reached"
        if not self.reaches(self.ours.figure, self.published.figure):
            return "not reproduced"
        return "not comparable: other part of the data" if self.published.measured else "reproduced"

    def reaches(self, value: float, wanted: float) -> bool:
        """Whether one is at least as good as the other."""
        return value >= wanted if self.better == "higher" else value <= wanted
