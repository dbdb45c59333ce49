"""How a whole input is read by whatever model reads it."""

from typing import Literal

from pydantic import Field

from statewise.specs.base import Spec
from statewise.specs.stacked import StackedSpec


class ReaderSpec(Spec):
    bidirectional: bool = Field(False, description="from both ends; a Transformer: without a mask")
    summary: Literal["last", "mean", "max"] = Field("last", description="what stands for all positions together")

    def classifier_flops(
        self, model: StackedSpec, length: float, *, num_classes: int, values: int | None = None
    ) -> float:
        """Of one class for a whole row: vectors of real values are made by a map, those of tokens are looked up."""
        width = model.embedding_width
        entry = 0 if values is None else length * 2 * values * width
        read = model.reader_flops(width, length, bidirectional=self.bidirectional)
        return entry + read + 2 * model.reader_output(bidirectional=self.bidirectional) * num_classes
