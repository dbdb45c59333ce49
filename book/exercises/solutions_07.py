"""Answers to the exercises of chapter 7."""

import numpy as np


def sigmoid(a):
    return 1 / (1 + np.exp(-a))


def lstm_cell(x, h, c, W, U, b):
    i, f, g, o = np.split(x @ W.T + h @ U.T + b, 4, axis=-1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def gru_cell(x, h, W, U, b, b_u):
    from_x, from_h = np.split(x @ W.T + b, 3, axis=-1), np.split(h @ U.T, 3, axis=-1)
    r, z = sigmoid(from_x[0] + from_h[0]), sigmoid(from_x[1] + from_h[1])
    n = np.tanh(from_x[2] + r * (from_h[2] + b_u))
    return (1 - z) * n + z * h


def forget_bias(steps):
    f = 0.5 ** (1 / steps)
    return np.log(f / (1 - f))


def num_weights(kind, width, inputs):
    gates = {"elman": 1, "gru": 3, "lstm": 4}[kind]
    return gates * width * (inputs + width + 1) + (width if kind == "gru" else 0)


def latch(values, store):
    h, held = 0.0, []
    for x, now in zip(values, store):
        z = 1 - now
        h = z * h + (1 - z) * x
        held.append(h)
    return held
