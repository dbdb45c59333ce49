"""Checks of the exercises of chapter 16."""

from types import ModuleType

import numpy as np
import torch
from torch.nn.functional import layer_norm, scaled_dot_product_attention

from statewise.models import build, cost_of


def check_16_1(answers: ModuleType) -> None:
    rng = np.random.default_rng(1)
    x, gain, bias = rng.normal(2.0, 3.0, size=(4, 5, 6)), rng.normal(size=6), rng.normal(size=6)
    expected = layer_norm(torch.tensor(x), (6,), torch.tensor(gain), torch.tensor(bias), 1e-5).numpy()
    found = np.asarray(answers.layer_norm(x, gain, bias))
    assert found.shape == x.shape, f"the shape is {found.shape}, expected {x.shape}"
    assert np.allclose(found, expected, atol=1e-9), (
        "not gain · (x - mean) / √(variance + 1e-5) + bias over the last axis; the variance divides by the width"
    )
    assert np.isfinite(answers.layer_norm(np.ones((1, 6)), gain, bias)).all(), "a vector of equal numbers divides by 0"


def check_16_2(answers: ModuleType) -> None:
    rng = np.random.default_rng(2)
    keys, values = np.zeros((0, 4)), np.zeros((0, 4))
    read: list[tuple[np.ndarray, ...]] = []
    for at in range(6):
        q, k, v = rng.normal(size=(3, 4))
        read.append((q, k, v))
        before = keys.copy()
        y, new_keys, new_values = (np.asarray(part) for part in answers.list_step(q, k, v, keys, values))
        assert np.array_equal(keys, before), "the old list was changed; return a new one"
        keys, values = new_keys, new_values
        assert keys.shape == values.shape == (at + 1, 4), f"after {at + 1} steps the lists have {keys.shape[0]} rows"
        rows = (np.stack(part)[None] for part in zip(*read))
        whole = scaled_dot_product_attention(*map(torch.tensor, rows), is_causal=True)
        assert np.allclose(y, whole[0, -1].numpy()), (
            "the output is not the mean of the values with weights softmax(Kq/√K)"
        )


def check_16_3(answers: ModuleType) -> None:
    for depth, width, length, heads, kv_heads in ((1, 8, 1, 1, 1), (2, 64, 10, 8, 8), (32, 4096, 8192, 32, 8)):
        expected = 2 * 2 * depth * (width // heads) * kv_heads * length
        found = answers.list_bytes(depth, width, length, heads, kv_heads)
        assert found == expected, (
            f"depth {depth}, width {width}, {length} symbols, {kv_heads} of {heads} heads: {found}, expected {expected}"
        )


def check_16_4(answers: ModuleType) -> None:
    depth, width, vocab = 2, 16, 10
    at = [
        cost_of(lambda: build("transformer", vocab=vocab, width=width, depth=depth), context=t).flops
        for t in (0, 1, 50)
    ]
    assert answers.longest(at[0] - 1, depth, width, vocab) == -1, "even the first step costs more than that: -1"
    for t, flops in zip((0, 1, 50), at):
        found = answers.longest(flops, depth, width, vocab)
        assert found == t, f"a budget of {flops} allows a step after {t} symbols, not {found}"
    assert answers.longest(at[1] - 1, depth, width, vocab) == 0, "a step that costs one operation too much is too dear"


def check_16_5(answers: ModuleType) -> None:
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(7, 2, 3))
    for window in (1, 3, 10):
        keys, values = np.zeros((0, 3)), np.zeros((0, 3))
        for at, (k, v) in enumerate(rows):
            keys, values = (np.asarray(part) for part in answers.forget_oldest(keys, values, k, v, window))
            first = max(at + 1 - window, 0)
            assert keys.shape == (at + 1 - first, 3), f"window {window}: {len(keys)} rows after {at + 1} steps"
            assert np.array_equal(keys, rows[first : at + 1, 0]), f"window {window}: the keys are not the newest ones"
            assert np.array_equal(values, rows[first : at + 1, 1]), (
                f"window {window}: the values are not the newest ones"
            )
