"""Six questions about memory as rows of symbols, in which the answers stand where they are asked for.

copy       c a b > c a b           every symbol after the sign, as far back as the row is long
reverse    c a b > b a c           the last first, so each answer is further away than the one before
parity     0 1 1 0 1 = 1           one bit that every symbol may have turned
dyck       ( [ ] { } )             of which kind a bracket is that closes
recall     e 5 b 0 . . . ? b 0     the value that stood beside a key
induction  d a c b e a c           what followed this symbol when it was seen before

An answer's distance is how many symbols back that is which decides it: for parity the first of the row.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from statewise.data.embedded.dice import Dice
from statewise.data.embedded.probes import probe_pairs
from statewise.data.embedded.recall import recall

_STREAM = 8
_LETTERS = tuple("abcdefgh")
_KINDS = ("()", "[]", "{}")
_MANY = tuple("abcdefghijklmnopqrstuvwxyz")
_PAIRS = 4


class Asked(NamedTuple):
    """A row; the symbol at each of `places` is an answer, `distances` symbols after what it depends on."""

    symbols: tuple[str, ...]
    places: tuple[int, ...]
    distances: tuple[int, ...]


class MemoryTask(NamedTuple):
    name: str
    what: str
    symbols: tuple[str, ...]  # all that occur
    options: tuple[str, ...]  # all that can be an answer
    least: int  # the shortest row that asks something
    draw: Callable[[int, int, int, int], list[Asked]]  # shortest, longest, count, seed

    @property
    def chance(self) -> float:
        """What is right without any memory."""
        return 1 / len(self.options)

    def rows(self, *, shortest: int, longest: int, count: int, seed: int) -> list[Asked]:
        """`count` rows whose sizes (of what is to be remembered) are drawn from these."""
        assert self.least <= shortest <= longest
        return self.draw(shortest, longest, count, seed)


def _sized(stream: int, make: Callable[[Dice, int], Asked]) -> Callable[[int, int, int, int], list[Asked]]:
    def draw(shortest: int, longest: int, count: int, seed: int) -> list[Asked]:
        dice = Dice(seed, stream=stream)
        return [make(dice, dice.between(shortest, longest)) for _ in range(count)]

    return draw


def _copied(shortest: int, longest: int, count: int, seed: int) -> list[Asked]:
    bounds = (shortest, longest)
    pairs = probe_pairs("copy", count=count, held=1, lengths=bounds, symbols=len(_LETTERS), seed=seed).train
    return [_pair(pair.source, pair.target, lambda _, size: size + 1) for pair in pairs]


def _reversed(shortest: int, longest: int, count: int, seed: int) -> list[Asked]:
    bounds = (shortest, longest)
    pairs = probe_pairs("reverse", count=count, held=1, lengths=bounds, symbols=len(_LETTERS), seed=seed).train
    return [_pair(pair.source, pair.target, lambda i, _: 2 * (i + 1)) for pair in pairs]


def _pair(source: str, target: str, distance: Callable[[int, int], int]) -> Asked:
    shown, answers = source.split(), target.split()
    places = range(len(shown) + 1, len(shown) + 1 + len(answers))
    distances = tuple(distance(i, len(shown)) for i in range(len(answers)))
    return Asked((*shown, ">", *answers), tuple(places), distances)


def _parity(dice: Dice, size: int) -> Asked:
    bits = [dice.below(2) for _ in range(size)]
    return Asked((*map(str, bits), "=", str(sum(bits) % 2)), (size + 1,), (size + 1,))


def _dyck(dice: Dice, size: int) -> Asked:
    """A balanced row of `size` pairs, each shape as likely as any other, kinds drawn."""
    symbols: list[str] = []
    opened: list[tuple[int, str]] = []
    places, distances = [], []
    for left in range(2 * size, 0, -1):
        depth = len(opened)
        # The share of the balanced endings from here that begin with an opening one (ballot numbers).
        if dice.below(2 * left * (depth + 1)) < (left - depth) * (depth + 2):
            kind = dice.choice(_KINDS)
            opened.append((len(symbols), kind[1]))
            symbols.append(kind[0])
        else:
            begun, last = opened.pop()
            places.append(len(symbols))
            distances.append(len(symbols) - begun)
            symbols.append(last)
    return Asked(tuple(symbols), tuple(places), tuple(distances))


def _recalled(shortest: int, longest: int, count: int, seed: int) -> list[Asked]:
    """Each size is a number of pauses between the last pair and the question."""
    sizes = range(shortest, longest + 1)
    found: list[Asked] = []
    for number, pauses in enumerate(sizes):
        share = count // len(sizes) + (number < count % len(sizes))
        # A seed of its own for each distance: otherwise they would all ask the same of the same pairs.
        own = (seed << 16) + pauses
        rows = recall(distance=pauses, pairs=_PAIRS, count=0, held=share, seed=own).held if share else ()
        for row in rows:
            symbols = (*row.text.split(), row.label)
            place = len(symbols) - 1
            found.append(Asked(symbols, (place,), (place - 1 - symbols.index(symbols[-2]),)))
    return found


def _induction(dice: Dice, size: int) -> Asked:
    """`size` symbols without order; the last is one of them once more, and is followed as that was."""
    shown = [dice.choice(_MANY) for _ in range(size)]
    once = [i for i in range(size - 1) if shown.count(shown[i]) == 1]
    if not once:  # in a long row every symbol may have come twice: then one of them is made to be alone
        place = dice.below(size - 1)
        alone = shown[place]
        others = tuple(symbol for symbol in _MANY if symbol != alone)
        shown = [symbol if i == place or symbol != alone else dice.choice(others) for i, symbol in enumerate(shown)]
        once = [place]
    asked = dice.choice(once)
    return Asked((*shown, shown[asked], shown[asked + 1]), (size + 1,), (size - asked,))


def _task(
    name: str,
    what: str,
    options: Sequence[str],
    others: Sequence[str],
    least: int,
    draw: Callable[[int, int, int, int], list[Asked]],
) -> MemoryTask:
    return MemoryTask(name, what, (*options, *others), tuple(options), least, draw)


MEMORY_TASKS: dict[str, MemoryTask] = {
    task.name: task
    for task in (
        _task("copy", "say again what was read", _LETTERS, ">", 2, _copied),
        _task("reverse", "say it backwards", _LETTERS, ">", 2, _reversed),
        _task("parity", "is the number of ones odd?", "01", "=", 1, _sized(_STREAM, _parity)),
        _task(
            "dyck",
            "close the bracket that is open",
            [kind[1] for kind in _KINDS],
            [kind[0] for kind in _KINDS],
            1,
            _sized(_STREAM + 1, _dyck),
        ),
        _task("recall", "which value stood beside the key?", "01234567", (*"abcdefgh", ".", "?"), 0, _recalled),
        _task("induction", "what followed this symbol before?", _MANY, "", 2, _sized(_STREAM + 2, _induction)),
    )
}
