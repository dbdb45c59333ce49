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

    def flops(self, channels: int, cells: float, num_classes: int) -> float:
        """Of classifying a grid of so many cells: four readings a layer, each from two cells back; and the head."""
        out, readings = 4 * self.width, 4
        entering = channels + (self.depth - 1) * out
        each = 2 * readings * self.width * (entering + self.depth * 2 * self.width)
        return cells * each + 2 * out * num_classes

    def num_parameters(self, channels: int, num_classes: int) -> int:
        """Parameters of the whole classifier, by formula: four readings a layer, and the head."""
        out, readings = 4 * self.width, 4
        layers = sum(
            readings * self.width * (entering + 2 * self.width + 1)
            for entering in (channels, *(out for _ in range(self.depth - 1)))
        )
        return layers + (out + 1) * num_classes
