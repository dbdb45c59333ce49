"""Answers to the exercises of chapter 14."""

from itertools import permutations

import numpy as np


def weights_of(e):
    e = np.exp(e - e.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def recommend(likes, movies, seen):
    return int(np.where(seen, -np.inf, movies @ likes).argmax())


def self_attention(x):
    return weights_of(x @ x.T) @ x


def causal_step(x, state):
    state = np.vstack([state, x])
    return weights_of(state @ x) @ state, state


def matching_traits(traits, A):
    return traits @ np.linalg.inv(A)


def is_equivariant(f, x):
    orders = [list(order) for order in permutations(range(len(x)))]
    return all(np.allclose(f(x[order]), f(x)[order]) for order in orders)
