"""Answers to the exercises of chapter 11."""

import numpy as np


def states(before, c, E, W, R, U, b, B, b_0):
    h, found = np.tanh(B @ c + b_0), []
    for token in before:
        h = np.tanh(W @ E[token] + U @ h + R @ c + b)
        found.append(h)
    return np.stack(found)


def least_nats(rows):
    total = 0.0
    for column in np.asarray(rows).T:
        shares = np.unique(column, return_counts=True)[1] / len(column)
        total -= (shares * np.log(shares)).sum()
    return total


def mixtures(names):
    return int(np.prod([len(set(column)) for column in zip(*names)]))


def known(order):
    return [place <= at for at, place in enumerate(order)]


def write(step, state, start, end, most):
    token, written = start, []
    while len(written) < most:
        token, state = step(token, state)
        if token == end:
            break
        written.append(token)
    return written
