"""Answers to the exercises of chapter 15."""

import numpy as np


def weights_of(e):
    e = np.exp(e - e.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def scaled_attention(x, W_q, W_k, W_v):
    q, k, v = x @ W_q.T, x @ W_k.T, x @ W_v.T
    return weights_of(q @ k.T / np.sqrt(k.shape[1])) @ v


def weights_jacobian(e):
    w = weights_of(e)
    return np.diag(w) - np.outer(w, w)


def split_heads(x, heads):
    T, D = x.shape
    return x.reshape(T, heads, D // heads).transpose(1, 0, 2)


def sinusoidal(t, width):
    angle = t * 10_000.0 ** (-np.arange(0, width, 2) / width)
    return np.stack([np.sin(angle), np.cos(angle)], axis=1).ravel()


def alibi_weights(score, slope):
    back = np.arange(len(score))[:, None] - np.arange(len(score))
    return weights_of(np.where(back >= 0, score - slope * back, -np.inf))
