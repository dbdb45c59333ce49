"""Answers to the exercises of chapter 2."""

import numpy as np


def perplexity(probabilities):
    if np.any(probabilities == 0):
        return np.inf
    return np.exp(-np.log(probabilities).mean())


def count_contexts(ids, order, vocab):
    windows = np.lib.stride_tricks.sliding_window_view(ids[:-1], order)
    return len(np.unique(windows, axis=0)), vocab**order


def add_k(ids, context, k, vocab):
    counts = np.full(vocab, float(k))
    for at in range(len(context), len(ids)):
        if tuple(ids[at - len(context) : at]) == tuple(context):
            counts[ids[at]] += 1
    return counts / counts.sum()


def is_first_order(joint):
    given_both = joint / joint.sum(2, keepdims=True)
    pairs = joint.sum(0)
    return np.abs(given_both - pairs / pairs.sum(1, keepdims=True)).max() < 1e-9


def long_run(transition):
    values, vectors = np.linalg.eig(transition.T)
    vector = vectors[:, np.argmin(np.abs(values - 1))].real
    return vector / vector.sum()
