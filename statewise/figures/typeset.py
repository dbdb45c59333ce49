"""Layout of text in a fixed pitch: which letter lies where, and of which piece it is.

Letters of right-to-left scripts are reordered by Unicode's bidirectional algorithm (UAX 9) for plain lines: marks that
nest directions do not occur, they are shown as signs.
"""

import unicodedata
from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

from statewise.display import clusters, columns, visible


class Spot(NamedTuple):
    """One letter with its marks, and the pieces they are of; `turned`: it runs from the right."""

    row: int
    column: int
    wide: int
    text: str
    pieces: tuple[int, ...]
    turned: bool = False

    @property
    def alone(self) -> str:
        """The letter as it is seen when it is drawn by itself."""
        return _MIRRORED.get(self.text, self.text) if self.turned else self.text


class _Letter(NamedTuple):
    text: str
    pieces: tuple[int, ...]


class Word(NamedTuple):
    """Letters that are drawn together, in the order in which they are read."""

    row: int
    column: int
    wide: int
    text: str
    turned: bool
    narrow: bool  # every letter is one place wide, and none has a mark


def typeset(pieces: Sequence[str], *, room: int) -> list[Spot]:
    """From the left, or from the right where a line's first letter is right-to-left. A mark stays with its letter."""
    spots: list[Spot] = []
    row = 0
    for paragraph in _paragraphs(pieces):
        right = runs_right_to_left("".join(word.text for word in paragraph))
        lines: list[list[_Letter]] = [[]]
        taken = 0
        for word in paragraph:
            if taken + columns(word.text) > room:
                lines.append([])
                taken = 0
            lines[-1].append(word)
            taken += columns(word.text)
        for line in lines:
            spots += _placed(line, row, right=right, room=room)
            row += 1
    return spots


def _paragraphs(pieces: Sequence[str]) -> list[list[_Letter]]:
    paragraphs: list[list[_Letter]] = [[]]
    for at, piece in enumerate(pieces):
        line = paragraphs[-1]
        last = line[-1].text if line else ""
        letters = clusters(last + visible(piece))
        if line and letters[0] != last:  # it begins with a mark of the letter before it
            line[-1] = _Letter(letters[0], (*line[-1].pieces, at))
        for text in letters[len(line[-1:]) :]:
            paragraphs[-1].append(_Letter(text, (at,)))
            if text == "⏎":
                paragraphs.append([])
    return paragraphs if paragraphs[-1] or len(paragraphs) == 1 else paragraphs[:-1]


def _placed(line: Sequence[_Letter], row: int, *, right: bool, room: int) -> list[Spot]:
    deep = levels([word.text for word in line], right=right)
    column = room - sum(columns(word.text) for word in line) if right else 0
    spots = []
    for at in order(deep):
        text, pieces = line[at]
        spots.append(Spot(row, column, columns(text), text, pieces, deep[at] % 2 == 1))
        column += columns(text)
    return spots


def words(spots: Sequence[Spot]) -> list[Word]:
    """Plain letters by line; those that run from the right by word, since they join; all others one by one."""
    joined = []
    for (row, turned, kind), some in groupby(spots, key=lambda spot: (spot.row, spot.turned, _kind(spot))):
        together = list(some)
        if kind == "one by one":
            joined += [Word(row, word.column, word.wide, word.text, turned, False) for word in together]
        else:
            text = "".join(spot.text for spot in (reversed(together) if turned else together))
            joined.append(Word(row, together[0].column, sum(word.wide for word in together), text, turned, not turned))
    return joined


def _kind(spot: Spot) -> str:
    if spot.turned:
        return "space" if spot.text.isspace() else "word"
    return "plain" if len(spot.text) == 1 and spot.wide == 1 and _is_plain(spot.text) else "one by one"


def _is_plain(letter: str) -> bool:
    """Letters that fonts of fixed pitch have: Latin, Greek and Cyrillic ones, and signs."""
    return ord(letter) < 0x530 or 0x2000 <= ord(letter) < 0x2600


_MIRRORED = dict(zip("()[]{}<>«»‹›（）「」『』《》", ")(][}{><»«›‹）（」「』『》《"))


def runs_right_to_left(text: str) -> bool:
    """The direction of a paragraph is that of its first letter that has one."""
    first = next((kind for letter in text if (kind := unicodedata.bidirectional(letter)) in ("L", "R", "AL")), "L")
    return first != "L"


def levels(letters: Sequence[str], *, right: bool) -> list[int]:
    """The embedding level of each letter of a line: even is left-to-right, odd is right-to-left."""
    base = int(right)
    kinds = _with_numbers([unicodedata.bidirectional(letter[0]) for letter in letters], "R" if right else "L")
    edge = "R" if right else "L"
    resolved: list[str] = []
    at = 0
    for neutral, some in groupby(kinds, key=lambda kind: kind not in ("L", "R", "N")):
        many = len(list(some))
        if neutral:
            sides = {
                _side(resolved[-1]) if resolved else edge,
                _side(kinds[at + many]) if at + many < len(kinds) else edge,
            }
            resolved += [sides.pop() if len(sides) == 1 else edge] * many
        else:
            resolved += kinds[at : at + many]
        at += many
    last = len(resolved)  # trailing white space stays at the end
    while last and (letters[last - 1] == "⏎" or letters[last - 1].isspace()):
        last -= 1
    deep = {"L": 2 * base, "R": 1, "N": 2}
    return [deep[kind] for kind in resolved[:last]] + [base] * (len(resolved) - last)


def order(deep: Sequence[int]) -> list[int]:
    """The visual order: which letter is at each place, from the left."""
    seen = list(range(len(deep)))
    for depth in range(max(deep, default=0), 0, -1):
        turned: list[int] = []
        for inside, some in groupby(seen, key=lambda at: deep[at] >= depth):
            run = list(some)
            turned += run[::-1] if inside else run
        seen = turned
    return seen


def _with_numbers(kinds: Sequence[str], edge: str) -> list[str]:
    """Letters as L or R; numbers are left-to-right in both, with a separator between two of them."""
    directions, before = [], edge
    for kind in kinds:
        if kind in ("L", "R", "AL"):
            before = "L" if kind == "L" else "R"
            directions.append(before)
        elif kind in ("AN", "EN"):
            directions.append("N" if kind == "AN" or before == "R" else "L")
        else:
            directions.append(kind)
    for at in range(1, len(directions) - 1):
        if kinds[at] in ("ES", "CS") and directions[at - 1] == directions[at + 1] == "N":
            directions[at] = "N"
    return directions


def _side(kind: str) -> str:
    return "L" if kind == "L" else "R"
