"""Answers to the exercises of chapter 16."""

import numpy as np


def layer_norm(x, gain, bias):
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return gain * (x - mean) / np.sqrt(variance + 1e-5) + bias


def list_step(q, k, v, keys, values):
    keys, values = np.vstack([keys, k]), np.vstack([values, v])
    scores = keys @ q / np.sqrt(len(q))
    weights = np.exp(scores - scores.max())
    return weights / weights.sum() @ values, keys, values


def list_bytes(depth, width, length, heads, kv_heads):
    return 2 * 2 * depth * kv_heads * (width // heads) * length


def longest(budget, depth, width, vocab):
    first = depth * (24 * width**2 + 4 * width) + 2 * width * vocab
    return -1 if budget < first else (budget - first) // (4 * depth * width)


def forget_oldest(keys, values, k, v, window):
    return np.vstack([keys, k])[-window:], np.vstack([values, v])[-window:]
