"""The two-dimensional network as data."""

from typing import ClassVar, Literal

from pydantic import Field

from statewise.specs.base import Spec


class GridSpec(Spec):
    """Four readings of a grid, one from each corner, in every layer (Graves et al. 2007)."""

    reads_cells: ClassVar[bool] = True

    kind: Literal["grid"] = "grid"
    width: int = Field(32, ge=1, description="units of one of the four readings")
    depth: int = Field(1, ge=1, description="layers")
    summary: Literal["mean", "max", "corners"] = Field(
        "corners", description="what stands for all cells together; corners: each reading where it ends"
    )
    dropout: float = Field(0.0, ge=0, lt=1, description="between layers and before the head")
    input_dropout: float = Field(0.0, ge=0, lt=1, description="on the cells of the grid")
    init: Literal["orthogonal", "published", "torch"] = Field("orthogonal", description="initialisation scheme")
    kernel: Literal["auto", "naive", "batched"] = Field("auto", description="force an implementation")

    def sizes(self) -> dict[str, int]:
        """What says how large it is."""
        return {"width": self.width, "depth": self.depth}
