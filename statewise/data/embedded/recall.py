"""Classification: pairs of keys and values, then something to pass over, then a key: which value was with it?

e 5 b 0 g 5 a 3 . . . . . . ? b  ->  0
"""

from functools import lru_cache

from statewise.data.embedded.dice import Dice
from statewise.data.embedded.parts import Parts, distinct, parts
from statewise.data.labelled import Labelled
from statewise.data.lines import Examples, Where

_STREAM = 7
_KEYS, _VALUES = "abcdefgh", "01234567"
_PAUSE, _ASK = ".", "?"


@lru_cache(maxsize=1)  # a trial asks for the same rows to train, to evaluate and to show answers
def recall(
    *, distance: int = 16, pairs: int = 4, count: int = 20_000, held: int = 500, seed: int = 0
) -> Parts[Labelled]:
    """Held-out rows have `distance` pauses between the last pair and the question, the others 0 to `distance`.

    Whoever remembers nothing of a row is right once in eight; whoever knows the values but not their keys, a little
    more than once in `pairs`.
    """
    assert 1 <= pairs <= len(_KEYS)
    assert distance >= 0
    dice = Dice(seed, stream=_STREAM)
    name = f"recall probe, distance {distance}, seed {seed}"

    def draw(pauses: int) -> Labelled:
        left = list(_KEYS)
        keys = [left.pop(dice.below(len(left))) for _ in range(pairs)]
        values = [dice.choice(_VALUES) for _ in range(pairs)]
        asked = dice.below(pairs)
        shown = [symbol for pair in zip(keys, values) for symbol in pair]
        text = " ".join([*shown, *[_PAUSE] * pauses, _ASK, keys[asked]])
        return Labelled(text, values[asked], Where(name, 0, "example"))

    asked_rows: Examples[Labelled] = Examples(distinct(lambda: draw(distance), lambda row: row.text, held))
    taken = {row.text for row in asked_rows}
    learned: Examples[Labelled] = Examples()
    while len(learned) < count:
        row = draw(dice.between(0, distance))
        if row.text not in taken:
            learned.append(row)
    return parts(name, _numbered(learned, 0), _numbered(asked_rows, count))


def _numbered(rows: Examples[Labelled], first: int) -> Examples[Labelled]:
    return Examples(row._replace(where=row.where._replace(line=i)) for i, row in enumerate(rows, start=first))
