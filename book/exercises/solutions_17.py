"""Answers to the exercises of chapter 17."""

import numpy as np


def write(keys, values):
    return keys.T @ values


def linear_attention(q, k, v):
    return np.tril(q @ k.T) @ v


def overwrite(keys, values, beta):
    S = np.zeros((keys.shape[1], values.shape[1]))
    for k, v in zip(keys, values):
        S = S + beta * np.outer(k, v - S.T @ k)
    return S


def inner_step(W, k, v, rate):
    y = np.tanh(W.T @ k)
    return W - rate * np.outer(k, (y - v) * (1 - y**2))


def break_even(width, heads):
    return 2 * width * width // heads // (2 * width) + 1
