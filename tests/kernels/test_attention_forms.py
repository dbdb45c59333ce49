"""The fused attention against the equation: outputs and every gradient; empty, full, ragged and bounded lists."""

import pytest
import torch
from torch import Tensor

from statewise.core import lens
from statewise.kernels.attention import Mask, append, attention, choice
from statewise.kernels.choice import force
from statewise.layers import alibi_slopes

BATCH, HEADS, WIDTH = 3, 4, 5


def leaf(*shape: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator).requires_grad_()


def results(kernel: str, mask: Mask, kv_heads: int) -> list[Tensor]:
    queries, slots = mask.query_at_BT.shape[1], mask.key_at_BS.shape[1]
    q = leaf(BATCH, queries, HEADS, WIDTH, seed=1)
    k, v = (leaf(BATCH, slots, kv_heads, WIDTH, seed=seed) for seed in (2, 3))
    with force(kernel):
        y = attention(q, k, v, mask, scale=0.4)
    gradients = torch.autograd.grad((y * leaf(*y.shape, seed=4).detach()).sum(), [q, k, v])
    return [y, *gradients]


def positions(count: int, offsets: list[int]) -> Tensor:
    return torch.tensor(offsets)[:, None] + torch.arange(count)


@pytest.mark.parametrize("kv_heads", [4, 2, 1])
@pytest.mark.parametrize("alibi", [False, True])
@pytest.mark.parametrize("window", [None, 1, 5])
@pytest.mark.parametrize("offsets", [[0, 0, 0], [4, 0, 2]])
@pytest.mark.parametrize("time", [1, 2, 63, 64, 65])
def test_causal_over_a_list(time: int, offsets: list[int], window: int | None, alibi: bool, kv_heads: int) -> None:
    slopes_H = alibi_slopes(HEADS, like=torch.zeros((), dtype=torch.float64)) if alibi else None
    before = max(offsets)
    mask = Mask(
        positions(time, offsets), positions(before + time, [0, 0, 0]), True, window, slopes_H, whole=before == 0
    )
    for fused, naive in zip(results("fused", mask, kv_heads), results("naive", mask, kv_heads), strict=True):
        torch.testing.assert_close(fused, naive, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("alibi", [False, True])
@pytest.mark.parametrize("lengths", [[7, 7, 7], [7, 2, 0]])
def test_without_an_order_of_time(lengths: list[int], alibi: bool) -> None:
    slopes_H = alibi_slopes(HEADS, like=torch.zeros((), dtype=torch.float64)) if alibi else None
    key_at = positions(7, [0, 0, 0])
    key_at = key_at.masked_fill(key_at >= torch.tensor(lengths)[:, None], -1)
    mask = Mask(positions(4, [0, 0, 0]), key_at, causal=False, slopes_H=slopes_H)
    both = [results(kernel, mask, 2) for kernel in ("fused", "naive")]
    for fused, naive in zip(*both, strict=True):
        torch.testing.assert_close(fused, naive, rtol=1e-12, atol=1e-12)
        assert fused.isfinite().all()
    if 0 in lengths:
        assert not both[0][0][2].any(), "a query that sees nothing gets 0"


def test_a_lens_sees_one_distribution_a_moment() -> None:
    mask = Mask(positions(3, [2, 0, 1]), positions(5, [0, 0, 0]))
    q, k = leaf(BATCH, 3, HEADS, WIDTH, seed=1), leaf(BATCH, 5, 2, WIDTH, seed=2)
    assert choice().implementation == "fused"
    with lens("attention.weights") as seen:
        assert choice().implementation == "naive"
        y = attention(q, k, k, mask, scale=0.4)
    weights_BTHS = seen["attention.weights"]
    assert weights_BTHS.shape == (BATCH, 3, HEADS, 5)
    torch.testing.assert_close(weights_BTHS.sum(-1), torch.ones(BATCH, 3, HEADS, dtype=torch.float64))
    assert not weights_BTHS[1, 0, :, 1:].any(), "row 1 begins at position 0 and sees itself alone"
    with lens("attention.weights", edit=lambda name, value: torch.zeros_like(value)):
        assert not attention(q, k, k, mask, scale=0.4).any()
    torch.testing.assert_close(y, attention(q, k, k, mask, scale=0.4))


def test_append_writes_behind_each_row() -> None:
    old = torch.tensor([[1.0, 2.0, 3.0], [4.0, torch.nan, torch.nan]])
    new = torch.tensor([[10.0, 11.0], [12.0, 13.0]])
    at = torch.tensor([[3, 4], [1, 2]])
    grown = append(old, new, at)
    assert grown[0].tolist() == [1, 2, 3, 10, 11]
    assert grown[1, :3].tolist() == [4, 12, 13], "and what stands behind means nothing"
    assert old.isnan().sum() == 2, "the old list is left as it was"
