"""A text in pieces with a cost at each, and the same text in other pieces: what they share are the ends."""

from collections.abc import Sequence
from itertools import accumulate

Pieces = Sequence[tuple[str, float]]


def text_of(pieces: Pieces) -> str:
    return "".join(piece for piece, _ in pieces)


def ends(pieces: Pieces) -> list[int]:
    return list(accumulate(len(piece) for piece, _ in pieces))


def shared_ends(several: Sequence[Pieces]) -> list[int]:
    """Where all of them have an end: the finest cut in which they can be compared."""
    return sorted(set.intersection(*(set(ends(pieces)) for pieces in several)) - {0})


def between(pieces: Pieces, at: Sequence[int]) -> list[float]:
    """What was paid between one end and the next."""
    paid = {0: 0.0}
    paid.update(zip(ends(pieces), accumulate(cost for _, cost in pieces)))
    return [paid[end] - paid[start] for start, end in zip([0, *at[:-1]], at)]


def with_their_halves(tokens: Pieces) -> list[tuple[str, float]]:
    """Of tokens that are parts of one character, the last writes it, and pays for all of them."""
    found, pending = [], 0.0
    for piece, cost in tokens:
        pending += cost
        if piece:
            found.append((piece, pending))
            pending = 0.0
    return found
