"""The order in which the letters of a line are seen: those of scripts that run from the right, turned around.

The rules of Unicode's bidirectional algorithm (UAX 9) for plain lines: no text here has marks that nest directions,
they are shown as signs.
"""

import unicodedata
from collections.abc import Sequence
from itertools import groupby

_MIRRORED = dict(zip("()[]{}<>«»‹›（）「」『』《》", ")(][}{><»«›‹）（」「』『》《"))


def runs_right_to_left(text: str) -> bool:
    """The direction of a paragraph is that of its first letter that has one."""
    first = next((kind for one in text if (kind := unicodedata.bidirectional(one)) in ("L", "R", "AL")), "L")
    return first != "L"


def levels(letters: Sequence[str], *, right: bool) -> list[int]:
    """Of each letter of a line: even, it runs from the left, odd, from the right; deeper inside turns again."""
    base = int(right)
    kinds = _with_numbers([unicodedata.bidirectional(one[0]) for one in letters], "R" if right else "L")
    edge = "R" if right else "L"
    found: list[str] = []
    at = 0
    for neutral, some in groupby(kinds, key=lambda kind: kind not in ("L", "R", "N")):
        many = len(list(some))
        if neutral:
            sides = {_side(found[-1]) if found else edge, _side(kinds[at + many]) if at + many < len(kinds) else edge}
            found += [sides.pop() if len(sides) == 1 else edge] * many
        else:
            found += kinds[at : at + many]
        at += many
    last = len(found)  # what ends a line lies at its end
    while last and (letters[last - 1] == "⏎" or letters[last - 1].isspace()):
        last -= 1
    deep = {"L": 2 * base, "R": 1, "N": 2}
    return [deep[kind] for kind in found[:last]] + [base] * (len(found) - last)


def order(deep: Sequence[int]) -> list[int]:
    """Which letter is seen at each place, from the left."""
    seen = list(range(len(deep)))
    for depth in range(max(deep, default=0), 0, -1):
        turned: list[int] = []
        for inside, some in groupby(seen, key=lambda at: deep[at] >= depth):
            run = list(some)
            turned += run[::-1] if inside else run
        seen = turned
    return seen


def mirrored(letter: str) -> str:
    """A bracket as it is seen among letters that run from the right."""
    return _MIRRORED.get(letter, letter)


def _with_numbers(kinds: Sequence[str], edge: str) -> list[str]:
    """Letters as L or R; numbers run from the left inside either, and take a sign between two of them with them."""
    found, before = [], edge
    for kind in kinds:
        if kind in ("L", "R", "AL"):
            before = "L" if kind == "L" else "R"
            found.append(before)
        elif kind in ("AN", "EN"):
            found.append("N" if kind == "AN" or before == "R" else "L")
        else:
            found.append(kind)
    for at in range(1, len(found) - 1):
        if kinds[at] in ("ES", "CS") and found[at - 1] == found[at + 1] == "N":
            found[at] = "N"
    return found


def _side(kind: str) -> str:
    return "L" if kind == "L" else "R"
