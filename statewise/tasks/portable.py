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


Sample = Callable[[int, int, torch.Generator], tuple[Tensor, ...]]  # inputs of so many rows and so long


class Whole(NamedTuple):
    """A module that needs all of its input at once: tensors to tensors."""

    name: str  # of the graph
    module: nn.Module
    inputs: Sequence[tuple[str, Axes]]
    outputs: Sequence[tuple[str, Axes]]
    sample: Sample
    longest: int | None = None  # input that it can read

    def ports(self) -> list[Port]:
        """An example, whose sizes differ; none of them is 1."""
        examples = self.sample(3, 5, torch.Generator().manual_seed(0))
        return [Port(name, example, axes) for (name, axes), example in zip(self.inputs, examples, strict=True)]


class Logits(nn.Module):
    """A classifier as a graph is: a tuple of outputs."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, source: Tensor, size_B: Tensor) -> tuple[Tensor]:
        return (self.model(source, size_B),)


def ragged_lengths(rows: int, time: int, generator: torch.Generator) -> Tensor:
    """At random, the first the longest."""
    lengths_B = torch.randint(1, time + 1, (rows,), generator=generator)
    lengths_B[0] = time
    return lengths_B


def ragged_tokens(vocab: int, rows: int, time: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    lengths_B = ragged_lengths(rows, time, generator)
    return torch.randint(vocab, (rows, time), generator=generator), lengths_B


class Portable(NamedTuple):
    settings: Mapping[str, Any]  # what the runtime has to know, as JSON
    files: Mapping[str, str | bytes]  # by name
    machine: Machine[Any] | None = None  # becomes a step graph and a sequence graph
    start: Any = None  # a state: where the machine begins
    weights: str = ""  # sha256, to which saved states belong
    whole: Whole | None = None
    source: Sample | None = None  # and lengths: what the machine reads before it begins, by one more graph
