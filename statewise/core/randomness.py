"""Uniform numbers by counter: each a function of its key, row and time, whoever else is in the batch.

B batch, T time.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor


def uniforms(
    key: Sequence[int], *, rows: int, times: int, kinds: int = 1, first_row: int = 0, first_time: int = 0
) -> Tensor:
    """`[rows, times, kinds]` in [0, 1): for each row and time step, `kinds` independent draws (at most 4)."""
    assert 1 <= kinds <= 4
    # Raw words of a counter-based generator: NumPy promises them to be the same in every version.
    words = np.random.SeedSequence(list(key)).generate_state(2, np.uint64)
    drawn = np.empty((rows, times, kinds))
    for row in range(rows):
        # A block of the counter is four words: a time step takes one.
        counter = np.array([first_time, first_row + row, 0, 0], dtype=np.uint64)
        raw = np.random.Philox(key=words, counter=counter).random_raw(4 * times).reshape(times, 4)
        drawn[row] = (raw[:, :kinds] >> np.uint64(11)) * 2.0**-53
    return torch.from_numpy(drawn)
