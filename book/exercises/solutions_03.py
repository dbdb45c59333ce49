"""Answers to the exercises of chapter 3."""

import numpy as np


def make_pairs(x, order):
    windows = np.lib.stride_tricks.sliding_window_view(x, order + 1)
    return windows[:, :-1], windows[:, -1]


def fit_ar(x, order):
    inputs, targets = make_pairs(x, order)
    return np.linalg.lstsq(inputs[:, ::-1], targets, rcond=None)[0]


def forecast(coefficients, past, steps):
    values = list(past)
    for _ in range(steps):
        newest_first = values[: -len(coefficients) - 1 : -1]
        values.append(float(np.dot(coefficients, newest_first)))
    return np.array(values[len(past) :])


def error_variance(a, sigma, k):
    return sigma**2 * sum(a ** (2 * step) for step in range(k))


def window_step(past, value, order):
    window = [*past, value][-order:]
    return window, window[max(len(window) - order + 1, 0) :]
