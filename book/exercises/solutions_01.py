"""Answers to the exercises of chapter 1."""

import numpy as np


def conditionals(joint):
    p_1, p_12 = joint.sum((1, 2)), joint.sum(2)
    return p_1, p_12 / p_1[:, None], joint / p_12[:, :, None]


def reverse_conditionals(joint):
    p_3, p_23 = joint.sum((0, 1)), joint.sum(0)
    return p_3, p_23 / p_3, joint / p_23


def shuffle_within(ids, size, seed):
    rng = np.random.default_rng(seed)
    starts = range(0, len(ids), size)
    return np.concatenate([rng.permutation(ids[at : at + size]) for at in starts])


def information(ids, distance):
    counts = np.zeros((ids.max() + 1, ids.max() + 1))
    np.add.at(counts, (ids[:-distance], ids[distance:]), 1)
    p = counts / counts.sum()
    apart, seen = np.outer(p.sum(1), p.sum(0)), p > 0
    return (p[seen] * np.log2(p[seen] / apart[seen])).sum()


def seeing_and_setting(p_1, p_2_given_1, value):
    together = p_1 * p_2_given_1[:, value]
    return together / together.sum(), p_1
