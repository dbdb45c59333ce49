"""What a run is made of outside of this package: the parts that become graphs, and what goes along with them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from statewise.core import Machine

Axes = Mapping[int, str]  # names of the sizes that are free, by axis


class Port(NamedTuple):
    """A named input of a graph: an example of it, and its free sizes."""

    name: str
    example: Tensor
    axes: Axes


class Whole(NamedTuple):
    """A module that needs all of its input at once: tensors to tensors."""

    name: str  # of the graph
    module: nn.Module
    inputs: Sequence[tuple[str, Axes]]
    outputs: Sequence[tuple[str, Axes]]
    sample: Callable[[int, int, torch.Generator], tuple[Tensor, ...]]  # inputs of so many rows and so long
    longest: int | None = None  # input that it can read

    def ports(self) -> list[Port]:
        """An example, whose sizes differ; none of them is 1."""
        examples = self.sample(3, 5, torch.Generator().manual_seed(0))
        return [Port(name, example, axes) for (name, axes), example in zip(self.inputs, examples, strict=True)]


class Portable(NamedTuple):
    settings: Mapping[str, Any]  # what the runtime has to know, as JSON
    files: Mapping[str, str | bytes]  # by name
    machine: Machine[Any] | None = None  # becomes a step graph and a sequence graph
    start: Any = None  # a state: where the machine begins
    weights: str = ""  # sha256, to which saved states belong
    whole: Whole | None = None
    source_vocab: int = 0  # tokens of what a conditional machine reads before it begins: one more graph
