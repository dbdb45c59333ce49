"""Generated probes of memory."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple, TypeVar

from statewise.data.embedded.parts import Parts, Rng, distinct, parts
from statewise.data.labelled import Labelled
from statewise.data.lines import Examples, Where
from statewise.data.pairs import Pair
from statewise.specs import UserError

P = TypeVar("P", Pair, Labelled)

# Streams of random draws, one for each generator.
_PAIR_STREAM, _RECALL_STREAM, _MEMORY_STREAM = 3, 7, 8
_KEYS, _VALUES = "abcdefgh", "01234567"
_PAUSE, _QUERY = ".", "?"


def probe_pairs(
    kind: Literal["copy", "reverse"],
    *,
    count: int = 5000,
    held: int = 500,
    lengths: tuple[int, int] = (2, 10),
    held_lengths: tuple[int, int] | None = None,
    symbols: int = 12,
    seed: int = 0,
) -> Parts[Pair]:
    """Sequences of letters to copy or reverse. `held_lengths` beyond `lengths` test generalisation to longer ones."""
    assert 2 <= symbols <= 26
    letters = [chr(ord("a") + i) for i in range(symbols)]
    possible = sum(symbols**length for length in range(lengths[0], lengths[1] + 1))
    if held_lengths is None and 2 * held > possible:
        raise UserError(
            f"{symbols} letters make only {possible} sequences of length {lengths[0]} to {lengths[1]}; "
            f"{held} cannot be held out",
            fix="use more symbols, longer sequences, or hold out fewer",
        )
    rng = Rng(seed, stream=_PAIR_STREAM)
    name = f"{kind} probe, seed {seed}"

    def draw(bounds: tuple[int, int]) -> Pair:
        source = [rng.choice(letters) for _ in range(rng.between(*bounds))]
        return Pair(" ".join(source), " ".join(source if kind == "copy" else source[::-1]), Where(name, 0, "example"))

    return drawn(name, lambda: draw(held_lengths or lengths), held, lambda: draw(lengths), count)


@lru_cache(maxsize=1)  # a trial reads the same rows to train, to evaluate and to show answers
def recall(
    *, distance: int = 16, longer: int = 1, pairs: int = 4, count: int = 20_000, held: int = 500, seed: int = 0
) -> Parts[Labelled]:
    """Key-value pairs, pauses, then a key; the label is its value: `e 5 b 0 g 5 a 3 . . . . . . ? b` is `0`.

    Training rows have 0 to `distance` pauses between the last pair and the query, held-out rows `longer` times
    `distance`. Without any memory accuracy is 1/8; with the values but not their keys, a little more than 1/`pairs`.
    """
    assert 1 <= pairs <= len(_KEYS)
    assert distance >= 0
    rng = Rng(seed, stream=_RECALL_STREAM)
    name = f"recall probe, distance {distance}, seed {seed}"

    def draw(pauses: int) -> Labelled:
        left = list(_KEYS)
        keys = [left.pop(rng.below(len(left))) for _ in range(pairs)]
        values = [rng.choice(_VALUES) for _ in range(pairs)]
        query = rng.below(pairs)
        context = [symbol for pair in zip(keys, values) for symbol in pair]
        text = " ".join([*context, *[_PAUSE] * pauses, _QUERY, keys[query]])
        return Labelled(text, values[query], Where(name, 0, "example"))

    return drawn(name, lambda: draw(longer * distance), held, lambda: draw(rng.between(0, distance)), count)


def drawn(
    name: str, draw_held: Callable[[], P], num_held: int, draw_train: Callable[[], P], num_train: int
) -> Parts[P]:
    """Held-out examples with distinct inputs, then training examples with none of those inputs."""
    held: list[P] = list(distinct(draw_held, lambda example: example[0], num_held))
    inputs = {example[0] for example in held}
    train: list[P] = []
    while len(train) < num_train:
        example = draw_train()
        if example[0] not in inputs:
            train.append(example)
    return parts(name, _numbered(train, 0), _numbered(held, num_train))


def _numbered(examples: list[P], first: int) -> Examples[P]:
    numbered: Examples[P] = Examples()
    for line, example in enumerate(examples, start=first):
        numbered.append(example._replace(where=example.where._replace(line=line)))
    return numbered


_LETTERS, _ALPHABET = tuple("abcdefgh"), tuple("abcdefghijklmnopqrstuvwxyz")
_BRACKETS = ("()", "[]", "{}")
_RECALL_PAIRS = 4


class MemoryRow(NamedTuple):
    """The symbol at each of `places` is an answer, `distances` symbols after what it depends on."""

    symbols: tuple[str, ...]
    places: tuple[int, ...]
    distances: tuple[int, ...]


DrawRows = Callable[[int, int, int, int], list[MemoryRow]]  # shortest, longest, count, seed


class MemoryTask(NamedTuple):
    """A question about memory as rows of symbols that hold the answers.

    copy       c a b > c a b           every symbol after the sign
    reverse    c a b > b a c           the last first: each answer is further away than the one before
    parity     0 1 1 0 1 = 1           one bit that every symbol may flip
    dyck       ( [ ] { } )             the kind of a closing bracket
    recall     e 5 b 0 . . . ? b 0     the value that belongs to a key
    induction  d a c b e a c           what followed this symbol before

    An answer's distance is the number of symbols back to what decides it: for parity the first of the row.
    """

    name: str
    what: str
    symbols: tuple[str, ...]  # all that occur
    options: tuple[str, ...]  # all possible answers
    least: int  # size of the shortest row with a question
    draw: DrawRows

    @property
    def chance(self) -> float:
        """Accuracy without any memory."""
        return 1 / len(self.options)

    def rows(self, *, shortest: int, longest: int, count: int, seed: int) -> list[MemoryRow]:
        """`count` rows whose sizes (of what is to be remembered) are drawn from `shortest` to `longest`."""
        assert self.least <= shortest <= longest
        return self.draw(shortest, longest, count, seed)


def _sized(stream: int, make: Callable[[Rng, int], MemoryRow]) -> DrawRows:
    def draw(shortest: int, longest: int, count: int, seed: int) -> list[MemoryRow]:
        rng = Rng(seed, stream=stream)
        return [make(rng, rng.between(shortest, longest)) for _ in range(count)]

    return draw


def _paired(kind: Literal["copy", "reverse"], distance: Callable[[int, int], int]) -> DrawRows:
    """Rows of `probe_pairs`; `distance` of answer i, given the size."""

    def draw(shortest: int, longest: int, count: int, seed: int) -> list[MemoryRow]:
        bounds = (shortest, longest)
        pairs = probe_pairs(kind, count=count, held=1, lengths=bounds, symbols=len(_LETTERS), seed=seed).train
        return [row(pair.source.split(), pair.target.split()) for pair in pairs]

    def row(source: list[str], answers: list[str]) -> MemoryRow:
        size, numbers = len(source), range(len(answers))
        places, distances = (size + 1 + i for i in numbers), (distance(i, size) for i in numbers)
        return MemoryRow((*source, ">", *answers), tuple(places), tuple(distances))

    return draw


def _parity(rng: Rng, size: int) -> MemoryRow:
    bits = [rng.below(2) for _ in range(size)]
    return MemoryRow((*map(str, bits), "=", str(sum(bits) % 2)), (size + 1,), (size + 1,))


def _dyck(rng: Rng, size: int) -> MemoryRow:
    """A balanced row of `size` pairs, each shape as likely as any other, kinds drawn."""
    symbols: list[str] = []
    opened: list[tuple[int, str]] = []
    places, distances = [], []
    for left in range(2 * size, 0, -1):
        depth = len(opened)
        # The share of the balanced endings from here that begin with an opening one (ballot numbers).
        if rng.below(2 * left * (depth + 1)) < (left - depth) * (depth + 2):
            kind = rng.choice(_BRACKETS)
            opened.append((len(symbols), kind[1]))
            symbols.append(kind[0])
        else:
            begun, last = opened.pop()
            places.append(len(symbols))
            distances.append(len(symbols) - begun)
            symbols.append(last)
    return MemoryRow(tuple(symbols), tuple(places), tuple(distances))


def _recall(shortest: int, longest: int, count: int, seed: int) -> list[MemoryRow]:
    """Each size is a number of pauses between the last pair and the query."""
    sizes = range(shortest, longest + 1)
    made: list[MemoryRow] = []
    for number, pauses in enumerate(sizes):
        share = count // len(sizes) + (number < count % len(sizes))
        # Its own seed for each distance, or all would query the same pairs.
        own_seed = (seed << 16) + pauses
        rows = recall(distance=pauses, pairs=_RECALL_PAIRS, count=0, held=share, seed=own_seed).held if share else ()
        for row in rows:
            symbols = (*row.text.split(), row.label)
            place = len(symbols) - 1
            made.append(MemoryRow(symbols, (place,), (place - 1 - symbols.index(symbols[-2]),)))
    return made


def _induction(rng: Rng, size: int) -> MemoryRow:
    """`size` random symbols; then one of them again, followed by the same symbol as before."""
    context = [rng.choice(_ALPHABET) for _ in range(size)]
    once = [i for i in range(size - 1) if context.count(context[i]) == 1]
    if not once:  # in a long row every symbol may occur twice: then one is made unique
        place = rng.below(size - 1)
        unique = context[place]
        others = tuple(symbol for symbol in _ALPHABET if symbol != unique)
        context = [symbol if i == place or symbol != unique else rng.choice(others) for i, symbol in enumerate(context)]
        once = [place]
    query = rng.choice(once)
    return MemoryRow((*context, context[query], context[query + 1]), (size + 1,), (size - query,))


def _task(
    name: str, what: str, options: Sequence[str], others: Sequence[str], least: int, draw: DrawRows
) -> MemoryTask:
    return MemoryTask(name, what, (*options, *others), tuple(options), least, draw)


MEMORY_TASKS: dict[str, MemoryTask] = {
    task.name: task
    for task in (
        _task("copy", "say again what was read", _LETTERS, ">", 2, _paired("copy", lambda i, size: size + 1)),
        _task("reverse", "say it backwards", _LETTERS, ">", 2, _paired("reverse", lambda i, size: 2 * (i + 1))),
        _task("parity", "is the number of ones odd?", "01", "=", 1, _sized(_MEMORY_STREAM, _parity)),
        _task(
            "dyck",
            "close the bracket that is open",
            [kind[1] for kind in _BRACKETS],
            [kind[0] for kind in _BRACKETS],
            1,
            _sized(_MEMORY_STREAM + 1, _dyck),
        ),
        _task("recall", "which value stood beside the key?", _VALUES, (*_KEYS, _PAUSE, _QUERY), 0, _recall),
        _task(
            "induction", "what followed this symbol before?", _ALPHABET, "", 2, _sized(_MEMORY_STREAM + 2, _induction)
        ),
    )
}
