"""A published result as data: what was published, what we aim at, what we got, and on which files."""

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from statewise.specs.base import Paths, Spec

_INTERVAL_SEEDS = 3  # fewer give no interval


class PublishedFigure(Spec):
    figure: float
    source: str
    verified: bool = Field(True, description="false: quoted from elsewhere, not read in the source itself")
    measured: str = Field("", description="what it was measured on, where that is not what is measured here")


class Goal(Spec):
    figure: float
    why: str = ""


class OurResult(Spec):
    figure: float
    seeds: int = Field(1, ge=1)


class ReproductionSpec(Spec):
    """The table `[reproduction]` of a recipe. Files are named by patterns within the folder a user brings."""

    metric: str = Field(description="a metric of the task's evaluation")
    better: Literal["lower", "higher"]
    published: PublishedFigure | None = None
    goal: Goal | None = Field(None, description="what we aim at, where nothing comparable was published or beside it")
    ours: OurResult | None = None
    expected: tuple[float, float] | None = Field(None, description="where a run of this recipe should land")
    cost: str = Field("", description="what it took, and on what")
    files: dict[str, Paths] = Field(
        description="a setting, and the file (`name/`: folder) it takes: patterns, the first that fits"
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
    def expected_from(self) -> str | None:
        """What the expected interval rests on."""
        if self.expected is None:
            return None
        seeds = 1 if self.ours is None else self.ours.seeds
        return f"{seeds} seeds" if seeds >= _INTERVAL_SEEDS else "one run, widened by judgement"

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

    def reaches(self, found: float, wanted: float) -> bool:
        """Whether one is at least as good as the other."""
        return found >= wanted if self.better == "higher" else found <= wanted
