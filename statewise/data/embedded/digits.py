"""Classification of grids: which digit is this? Handwriting of 8 by 8 cells, as scikit-learn carries it.

N grids, H height, W width.
"""

from importlib import import_module

import numpy as np

from statewise.data.arrays import Grids
from statewise.data.lines import Where
from statewise.specs import UserError, option


def digits() -> Grids:
    """All of them, in their order; each cell counts ink from 0 to 16 (Alpaydin and Kaynak 1998)."""
    try:
        found = import_module("sklearn.datasets").load_digits()
    except ModuleNotFoundError:
        raise UserError(
            "the embedded digits are those of scikit-learn, which is not installed",
            fix=f"pip install 'statewise[tasks]', or name a file of grids: {option('data', 'FILE.npz')}",
        ) from None
    values_NHW = np.asarray(found.images, dtype=np.float32)
    where = [Where("scikit-learn's digits", row, "row") for row in range(len(values_NHW))]
    return Grids(values_NHW[..., None], [str(one) for one in found.target.tolist()], where)
