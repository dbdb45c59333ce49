"""Answers to the exercises of chapter 10."""

import numpy as np


def reverse_rows(x, lengths):
    turned = x.copy()
    for row, length in enumerate(lengths):
        turned[row, :length] = x[row, :length][::-1]
    return turned


def fewest_layers(kind, layers, steps):
    return layers * steps if kind == "transition" else steps + layers - 1


def from_lower_right(x, W, U, V, b):
    height, width, _ = x.shape
    h = np.zeros((height + 1, width + 1, len(b)))  # zeros below and on the right
    for i in reversed(range(height)):
        for j in reversed(range(width)):
            h[i, j] = np.tanh(W @ x[i, j] + U @ h[i + 1, j] + V @ h[i, j + 1] + b)
    return h[:height, :width]


def compose(tree, vectors, U, b):
    if isinstance(tree, str):
        return vectors[tree]
    left, right = (compose(part, vectors, U, b) for part in tree)
    return np.tanh(U @ np.concatenate([left, right]) + b)


def edges_between(length, i, j):
    edges, here, there = 0, i, j
    while here != there:
        # In each round an odd one out keeps its place as the last, without an edge.
        for node in (here, there):
            edges += not (length % 2 and node == length - 1)
        here, there, length = here // 2, there // 2, (length + 1) // 2
    return edges
