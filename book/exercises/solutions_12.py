"""Answers to the exercises of chapter 12."""

import numpy as np


def encode(source, E, W, U, b):
    h = np.zeros(len(b))
    for token in source:
        h = np.tanh(W @ E[token] + U @ h + b)
    return h


def decode_step(token, s, c, E, W, R, U, b, C, b_C, V, v):
    s = np.tanh(W @ E[token] + R @ c + U @ s + b)
    logits = V @ np.tanh(C @ np.concatenate([s, c, E[token]]) + b_C) + v
    logits = logits - logits.max()
    return logits - np.log(np.exp(logits).sum()), s


def objective(log_p, lengths):
    return np.mean([row[:length].sum() for row, length in zip(log_p, lengths)])


def exact_match(written, targets, end):
    def told(tokens):
        return tokens[: tokens.index(end) + 1] if end in tokens else tokens

    return np.mean([told(ours) == told(true) for ours, true in zip(written, targets)])


def least_numbers(symbols, length):
    bits = (symbols**length - 1).bit_length()
    return -(-bits // 32)
