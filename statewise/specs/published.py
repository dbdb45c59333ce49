"""A published result as data: what a recipe should give, on which files, and who said so."""

from typing import Any, Literal

from pydantic import Field

from statewise.specs.base import Spec
from statewise.specs.paths import Paths


class PublishedSpec(Spec):
    """The table `[published]` of a recipe. Files are named by patterns within the folder a user brings."""

    metric: str = Field(description="a figure of the task's evaluation")
    better: Literal["lower", "higher"]
    figure: float = Field(description="the published figure, or the goal where none was published")
    expected: tuple[float, float] | None = Field(None, description="where our own result should land")
    source: str
    cost: str = Field("", description="what it took, and on what")
    files: dict[str, Paths] = Field(
        description="a setting, and the file (`name/`: folder) it takes: patterns, the first that fits"
    )
    evaluate: tuple[Paths, ...] = Field((), description="files of the final figure; none: what is held out")
    sha256: tuple[str, ...] = Field(
        (), description="how those of `files` and `evaluate` begin, in their order, unpacked: they tell other data"
    )
    elsewhere: dict[str, Any] = Field({}, description="settings on other data, for what is a fact of these alone")
