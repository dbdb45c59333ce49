"""Which rows are looked at: as many as are asked for, spread over all of them."""

import numpy as np

from statewise.specs import UserError, option
from statewise.tasks import Specimens


def chosen(specimens: Specimens, count: int, *, shortest: int = 2, longest: int | None = None) -> list[int]:
    """Rows with at least and at most so many places, evenly spaced, in their order."""
    place = specimens.words.place
    able = [number for number in range(len(specimens)) if specimens.length(number) >= shortest]
    if able and longest is not None:
        able = [number for number in able if specimens.length(number) <= longest]
        if not able:
            raise UserError(
                f"every row of {specimens.source} has more than {longest:,} {place}s, and all of a row is held at once",
                fix=f"give shorter rows: {option('data', 'FILE')}",
            )
    if not able:
        raise UserError(
            f"no row of {specimens.source} has {shortest} {place}s or more",
            fix=f"give longer rows: {option('data', 'FILE')}",
        )
    return [able[at] for at in np.unique(np.linspace(0, len(able) - 1, count).round().astype(int))]
