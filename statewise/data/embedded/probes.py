"""Probes of memory as pairs: copy a sequence, or write it backwards."""

from typing import Literal

from statewise.data.embedded.dice import Dice
from statewise.data.embedded.parts import Parts, distinct, parts
from statewise.data.lines import Examples, Where
from statewise.data.pairs import Pair
from statewise.specs import UserError

_STREAM = 3


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
    """Sequences of letters. `held_lengths` beyond `lengths` ask for more than was trained."""
    assert 2 <= symbols <= 26
    letters = [chr(ord("a") + i) for i in range(symbols)]
    room = sum(symbols**length for length in range(lengths[0], lengths[1] + 1))
    if held_lengths is None and 2 * held > room:
        raise UserError(
            f"{symbols} letters make only {room} sequences of length {lengths[0]} to {lengths[1]}; "
            f"{held} cannot be held out",
            fix="use more symbols, longer sequences, or hold out fewer",
        )
    dice = Dice(seed, stream=_STREAM)
    name = f"{kind} probe, seed {seed}"

    def draw(bounds: tuple[int, int]) -> Pair:
        source = [dice.choice(letters) for _ in range(dice.between(*bounds))]
        return Pair(" ".join(source), " ".join(source if kind == "copy" else source[::-1]), Where(name, 0, "example"))

    asked: Examples[Pair] = Examples(distinct(lambda: draw(held_lengths or lengths), lambda pair: pair.source, held))
    taken = {pair.source for pair in asked}
    learned: Examples[Pair] = Examples()
    while len(learned) < count:
        pair = draw(lengths)
        if pair.source not in taken:
            learned.append(pair)
    return parts(name, _numbered(learned, 0), _numbered(asked, count))


def _numbered(pairs: Examples[Pair], first: int) -> Examples[Pair]:
    return Examples(pair._replace(where=pair.where._replace(line=i)) for i, pair in enumerate(pairs, start=first))
