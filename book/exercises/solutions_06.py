"""Answers to the exercises of chapter 6."""

import math

import numpy as np


def steps_until(eigenvalue, share):
    return math.ceil(math.log(share) / math.log(abs(eigenvalue)) - 1e-9)


def rescaled(W, radius):
    return W * radius / np.abs(np.linalg.eigvals(W)).max()


def gradient_norms(U, states):
    product, norms = np.eye(len(U)), []
    for h in states[::-1]:
        product = product @ ((1 - h**2)[:, None] * U)
        norms.append(np.linalg.norm(product, 2))
    return norms


def share_for(steps):
    return math.exp(-1 / steps)


def fixed_point(w):
    h = 1.0
    for _ in range(10_000):
        h = math.tanh(w * h)
    return h, w * (1 - h**2)
