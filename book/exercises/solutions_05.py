"""Answers to the exercises of chapter 5."""

import numpy as np


def clip(gradient, theta):
    length = np.linalg.norm(gradient)
    return gradient if length <= theta else gradient * theta / length


def output_gradient(logits, targets):
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    p[np.arange(len(targets)), targets] -= 1
    return p


def slope_of_last(w, x):
    h, slope = 0.0, 0.0
    for value in x:
        after = np.tanh(w * h + value)
        slope = (1 - after**2) * (h + w * slope)
        h = after
    return slope


def segments(length, size):
    return [(start, min(start + size, length)) for start in range(0, length, size)]


def through_time(states, W):
    product = np.eye(len(W))
    for state in states:
        product = product @ W * (1 - state**2)
    return product
