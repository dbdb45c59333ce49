"""The Markov model as data. It has no weights: what it knows it has counted."""

from typing import ClassVar, Literal, Self

from pydantic import Field

from statewise.specs.base import Spec


class MarkovSpec(Spec):
    kind: Literal["markov"] = "markov"
    learns: ClassVar[Literal["gradient", "counting"]] = "counting"
    step_grows: ClassVar[bool] = False

    order: int = Field(5, ge=1, le=32, description="how many symbols back it looks")
    smoothing: Literal["kneser-ney", "modified", "add-k"] = Field(
        "kneser-ney", description="modified: discounts estimated from the counts (Chen and Goodman 1999)"
    )
    discount: float = Field(0.75, gt=0, lt=1, description="what Kneser-Ney takes from each count")
    add: float = Field(0.01, gt=0, description="the k of add-k")
    lowest: Literal["uniform", "counts"] = Field(
        "uniform",
        description="below single symbols: mix in the uniform distribution, or (as NLTK) nothing, "
        "so that what was never seen is impossible",
    )

    def small(self) -> Self:
        """For trying the laws: it is small as it is."""
        return self

    def sizes(self) -> dict[str, int]:
        """What says how large it is."""
        return {"order": self.order}
