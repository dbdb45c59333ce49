"""A random order of any number of things that is computed, never stored: place i of it in constant time and memory."""

import numpy as np
from numpy.typing import NDArray

_ROUNDS = 6
_MULTIPLIERS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


def permuted(index_N: NDArray[np.int64], count: int, keys: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Where each index of 0 … count - 1 goes, in the order that `keys` choose: a bijection.

    A Feistel network shuffles the numbers of just as many bits as `count` needs (one more, if that is odd). What leaves
    the range goes through it again, until it is back: fewer than four times in the mean.
    """
    assert len(keys) == _ROUNDS
    half = np.uint64(max(1, (count - 1).bit_length() + 1 >> 1))
    mask = (np.uint64(1) << half) - np.uint64(1)
    out_N = index_N.astype(np.uint64)
    outside_N = np.ones(len(out_N), dtype=bool)
    while outside_N.any():
        out_N[outside_N] = _feistel(out_N[outside_N], half, mask, keys)
        outside_N = out_N >= count
    return out_N.astype(np.int64)


def num_keys() -> int:
    return _ROUNDS


def _feistel(x_N: NDArray[np.uint64], half: np.uint64, mask: np.uint64, keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    left_N, right_N = x_N >> half, x_N & mask
    for key in keys:
        left_N, right_N = right_N, left_N ^ (_hashed(right_N ^ key) & mask)
    return left_N << half | right_N


def _hashed(x_N: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64: every bit of the result depends on every bit of the argument."""
    for shift, multiplier in zip((30, 27), _MULTIPLIERS):
        x_N = (x_N ^ x_N >> np.uint64(shift)) * multiplier
    return x_N ^ x_N >> np.uint64(31)
