"""Answers to the exercises of chapter 4."""

import numpy as np


def parity(bits):
    state, seen = 0, []
    for bit in bits:
        state ^= bit
        seen.append(state)
    return seen


def rnn_step(x, h, W_xh, W_hh, b_h):
    return np.tanh(x @ W_xh + h @ W_hh + b_h)


def run_rnn(X, h, W_xh, W_hh, b_h):
    states = []
    for t in range(X.shape[1]):
        h = rnn_step(X[:, t], h, W_xh, W_hh, b_h)
        states.append(h)
    return np.stack(states, axis=1), h


def last_states(output, lengths):
    return output[np.arange(len(output)), lengths - 1]


def parity_network():
    """Two units near -1 or 1: is s + x >= 1, is it >= 2? s is half their difference."""
    k = 20.0
    W_xh = np.array([[k, k]])
    W_hh = np.array([[k / 2, k / 2], [-k / 2, -k / 2]])
    b_h = np.array([-0.5 * k, -1.5 * k])
    return W_xh, W_hh, b_h, np.array([0.5, -0.5]), -0.5
