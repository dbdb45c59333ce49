"""Answers to the exercises of chapter 8."""

import math
from itertools import pairwise

import numpy as np


def told(outputs, first):
    return [first, *outputs[:-1]]


def jordan_forced(x, y, W, R, b, V, c):
    last = np.vstack([np.zeros_like(y[:1]), y[:-1]])
    return np.tanh(x @ W.T + last @ R.T + b) @ V.T + c


def jordan_free(x, W, R, b, V, c):
    last, outputs = np.zeros(len(c)), []
    for x_t in x:
        last = V @ np.tanh(W @ x_t + R @ last + b) + c
        outputs.append(last)
    return outputs


def half_way(k):
    return k * math.log(k)


def sequence_probability(first, given, symbols):
    p = first[symbols[0]]
    for before, now in pairwise(symbols):
        p *= given[before][now]
    return p
