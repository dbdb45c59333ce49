"""A published result as data: what a recipe should give, on which files, and who said so."""

from typing import Literal

from pydantic import Field

from statewise.specs.base import Spec


class PublishedSpec(Spec):
    """The table `[published]` of a recipe. Files are named by patterns within the folder a user brings."""

    metric: str = Field(description="a figure of the task's evaluation")
    better: Literal["lower", "higher"]
    figure: float = Field(description="the published figure, or the goal where none was published")
    expected: tuple[float, float] | None = Field(None, description="where our own result should land")
    source: str
    cost: str = Field("", description="what it took, and on what")
    files: dict[str, str] = Field(description="a setting, and the file it takes")
    evaluate: tuple[str, ...] = Field((), description="files of the final figure; none: what is held out")
