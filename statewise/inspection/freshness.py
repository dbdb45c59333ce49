"""Where in a text a model starts with an empty memory: at documents, and at windows it has learned within."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from statewise.core import Machine
from statewise.inspection.reading import Reading, reach


def fresh_starts(model: Machine[Any], reading: Reading) -> NDArray[np.intp]:
    """Tokens before which the state is the initial one, the first of all among them."""
    fresh_T = np.zeros(len(reading), dtype=bool)
    fresh_T[:: reach(model, reading) or len(reading)] = True
    if reading.end_id is not None:
        fresh_T |= reading.tokens_T.cpu().numpy() == reading.end_id
    return np.flatnonzero(fresh_T)
