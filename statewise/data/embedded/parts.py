"""What every embedded dataset has: training and held-out examples, a fingerprint, and reproducible random draws."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Generic, NamedTuple, TypeVar, final

from statewise.data.batch import draws
from statewise.data.lines import Examples

E = TypeVar("E", bound=tuple[object, ...])


class Parts(NamedTuple, Generic[E]):
    """`sha256` is that of all examples, since what Python carries differs from version to version."""

    name: str
    train: Examples[E]
    held: Examples[E]
    sha256: str


def parts(
    name: str, train: Examples[E], held: Examples[E], *, text: Callable[[E], str] = lambda example: repr(tuple(example))
) -> Parts[E]:
    """`text` writes an example for the fingerprint."""
    digest = hashlib.sha256()
    for part in (train, held):
        for example in part:
            digest.update(text(example).encode() + b"\n")
        digest.update(b"\0")
    return Parts(name, train, held, digest.hexdigest())


def by_file(examples: Mapping[str, Examples[E]], *, share: float) -> tuple[Examples[E], Examples[E]]:
    """Whole files held out, about `share` of the examples and at least one: which, the hash of their names decides."""
    assert len(examples) > 1
    wanted = share * sum(map(len, examples.values()))
    chosen: list[str] = []
    size = 0
    for name in sorted(examples, key=_hash):
        if size + len(examples[name]) / 2 <= wanted:
            chosen.append(name)
            size += len(examples[name])
    if not size or len(chosen) == len(examples):
        chosen = [min((name for name in examples if examples[name]), key=lambda name: (len(examples[name]), name))]
    return _joined(v for k, v in examples.items() if k not in chosen), _joined(examples[name] for name in chosen)


def _joined(several: Iterable[Examples[E]]) -> Examples[E]:
    joined: Examples[E] = Examples()
    for examples in several:
        joined += examples
        joined.counts += examples.counts
    return joined


def distinct(draw: Callable[[], E], key: Callable[[E], object], count: int) -> Iterable[E]:
    """`count` examples of different keys, from a generator that has more than enough of them."""
    seen: set[object] = set()
    tries = 0
    while len(seen) < count:
        example = draw()
        tries += 1
        assert tries < 100 * count + 1000, "the generator has too few different examples"
        if key(example) not in seen:
            seen.add(key(example))
            yield example


def _hash(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


T = TypeVar("T")

_BLOCK = 4096


@final
class Rng:
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
