"""Chance that is the same in every version of Python and NumPy."""

from collections.abc import Iterator, Sequence
from itertools import count
from typing import TypeVar, final

from statewise.data.batch import draws

T = TypeVar("T")

_BLOCK = 4096


@final
class Dice:
    """Draws from a seed, and from a `stream` of its own for each use."""

    def __init__(self, seed: int, *, stream: int) -> None:
        self._words = _words(seed, stream)

    def below(self, limit: int) -> int:
        """0, 1, … or limit - 1."""
        return next(self._words) % limit

    def between(self, least: int, most: int) -> int:
        return least + self.below(most - least + 1)

    def choice(self, options: Sequence[T]) -> T:
        return options[self.below(len(options))]


def _words(seed: int, stream: int) -> Iterator[int]:
    for block in count():
        yield from draws(seed, stream, block=block, count=_BLOCK).tolist()
