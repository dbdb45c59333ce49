"""One pass over whatever is read: what is observed on the way, and what could be followed.

T places, U units.
"""

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from statewise.inspection.gates.trace import Observed, Sight, Units
from statewise.specs import UserError, nearest


class Walk(NamedTuple):
    observed: Sequence[Observed]
    features: Mapping[str, NDArray[np.float32]]  # of every place
    pieces: Sequence[str]
    chunks: Iterator[tuple[int, Mapping[str, Units]]]  # where each begins, and every observed name in it
    missing: tuple[str, ...]
    place: str  # what stands at a place
    text: bool = True
    first: int = 0  # places of the first row; 0: there is but one
    part: str = ""  # of the rows, that is walked along: one of several texts; "": all of them


def matching(found: Sight, names: str) -> tuple[list[Observed], list[str]]:
    """What is looked at of what there is to see, and what is left out."""
    observed = [one for one in found.observed if fnmatchcase(one.name, names)]
    if not found.observed:
        raise UserError("this model shows nothing of itself that has units", fix="look through the lens attention")
    if not observed:
        raise UserError(f"no observed name matches {names!r}", fix=nearest(names, [one.name for one in found.observed]))
    missing = found.cut
    if found.growing:
        missing.append(
            f"{', '.join(found.growing)}: the size changes from place to place, so there are no units; see the lens "
            "attention"
        )
    return observed, missing
