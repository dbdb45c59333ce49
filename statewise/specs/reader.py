"""How a whole input is read by whatever model reads it."""

from typing import Literal

from pydantic import Field

from statewise.specs.base import Spec


class ReaderSpec(Spec):
    bidirectional: bool = Field(False, description="from both ends; a Transformer: without a mask")
    summary: Literal["last", "mean", "max"] = Field("last", description="what stands for all positions together")
