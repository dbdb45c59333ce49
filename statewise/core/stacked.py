"""Which parameters with two axes are not one matrix."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence


class Stacked(ABC):
    """A module in which several matrices stand one below the other: gates, or queries, keys and values.

    One product serves them all, but an optimiser that looks at a matrix as a whole has to see them apart.
    """

    @abstractmethod
    def stacked(self) -> Mapping[str, Sequence[int]]:
        """By a parameter's name, the rows of each matrix in it; none for a table of gains, biases or filters."""
