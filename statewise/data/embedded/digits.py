"""Classification of grids: which digit is this? Handwriting of 8 by 8 cells.

`digits.csv.gz` is the test part of "Optical Recognition of Handwritten Digits" (Alpaydin and Kaynak 1998) from the UCI
Machine Learning Repository (CC BY 4.0, doi:10.24432/C50P49), unchanged, as scikit-learn distributes it: a row for each
digit, 64 cells and the label.

N grids, H height, W width.
"""

import gzip
from importlib import resources

import numpy as np

from statewise.data.arrays import Grids
from statewise.data.lines import Where


def digits() -> Grids:
    """All of them, in their order; each cell counts ink from 0 to 16."""
    packed = resources.files("statewise.data.embedded").joinpath("digits.csv.gz").read_bytes()
    rows_NC = np.loadtxt(gzip.decompress(packed).decode("ascii").splitlines(), dtype=np.int64, delimiter=",")
    values_NHW = rows_NC[:, :-1].astype(np.float32).reshape(-1, 8, 8)
    where = [Where("the embedded digits", row, "row") for row in range(len(values_NHW))]
    return Grids(values_NHW[..., None], [str(label) for label in rows_NC[:, -1].tolist()], where)
