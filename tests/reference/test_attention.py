"""Attention against torch.nn.MultiheadAttention and against NumPy: values and gradients, three forms of mask."""

import numpy as np
import pytest
import torch
from agreement import assert_same, fill, noise
from torch import Tensor, nn

from statewise.core import lens
from statewise.encoders import MultiHeadAttention, basic_attention
from statewise.layers import Heads
from statewise.mixers import Attention, BasicAttention, SlidingAttention
from statewise.models import build_reader
from statewise.specs import GRUSpec

WIDTH, HEADS, BATCH, TIME = 12, 3, 4, 7
LENGTHS = torch.tensor([7, 1, 4, 0])
KERNELS = ["fused", "naive"]


def oracle() -> nn.MultiheadAttention:
    theirs = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True).double()
    fill(theirs)
    return theirs


def copy_weights(heads: Heads, theirs: nn.MultiheadAttention) -> None:
    assert heads.b_P is not None
    assert heads.b_D is not None
    with torch.no_grad():
        heads.w_PI.copy_(theirs.in_proj_weight)
        heads.b_P.copy_(theirs.in_proj_bias)
        heads.o_DD.copy_(theirs.out_proj.weight)
        heads.b_D.copy_(theirs.out_proj.bias)


def same_gradients(ours: Tensor, theirs: Tensor, heads: Heads, oracle: nn.MultiheadAttention) -> None:
    weight = noise(*ours.shape, seed=9)
    assert_same(ours, theirs)
    mine = torch.autograd.grad((ours * weight).sum(), [heads.w_PI, heads.b_P, heads.o_DD, heads.b_D])
    out = oracle.out_proj
    its = torch.autograd.grad(
        (theirs * weight).sum(), [oracle.in_proj_weight, oracle.in_proj_bias, out.weight, out.bias]
    )
    for a, b in zip(mine, its, strict=True):
        assert_same(a, b)


@pytest.mark.parametrize("kernel", KERNELS)
def test_causal(kernel: str) -> None:
    theirs = oracle()
    ours = Attention(WIDTH, heads=HEADS, kernel=kernel).double()
    copy_weights(ours.heads, theirs)
    x = noise(BATCH, TIME, WIDTH, seed=1)
    future = torch.ones(TIME, TIME, dtype=torch.bool).triu(1)
    same_gradients(ours(x)[0], theirs(x, x, x, attn_mask=future, need_weights=False)[0], ours.heads, theirs)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("time", [7, 128, 129, 300])
@pytest.mark.parametrize("window", [1, 3, 20, 150])
def test_sliding_window(kernel: str, window: int, time: int) -> None:
    """Short inputs are one block of queries, long ones several."""
    theirs = oracle()
    ours = SlidingAttention(WIDTH, heads=HEADS, window=window, kernel=kernel).double()
    copy_weights(ours.heads, theirs)
    x = noise(BATCH, time, WIDTH, seed=1)
    distance = torch.arange(time)[:, None] - torch.arange(time)
    hidden = (distance < 0) | (distance >= window)
    same_gradients(ours(x)[0], theirs(x, x, x, attn_mask=hidden, need_weights=False)[0], ours.heads, theirs)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["full", "ragged"])
def test_bidirectional(kernel: str, lengths: Tensor | None) -> None:
    theirs = oracle()
    ours = MultiHeadAttention(WIDTH, heads=HEADS, kernel=kernel).double()
    copy_weights(ours.heads, theirs)
    x = noise(BATCH, TIME, WIDTH, seed=2)
    y = ours(x, lengths)
    if lengths is None:
        same_gradients(y, theirs(x, x, x, need_weights=False)[0], ours.heads, theirs)
        return
    padding = torch.arange(TIME) >= lengths[:, None]
    rows = lengths > 0  # torch.nn answers NaN to a row without keys
    expected = theirs(x[rows], x[rows], x[rows], key_padding_mask=padding[rows], need_weights=False)[0]
    expected = expected.masked_fill(padding[rows][:, :, None], 0.0)
    assert not y[~rows].any()
    same_gradients(y[rows], expected, ours.heads, theirs)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("lengths", [None, torch.tensor([5, 1, 3, 2])], ids=["full", "ragged"])
def test_cross(kernel: str, lengths: Tensor | None) -> None:
    theirs = oracle()
    ours = MultiHeadAttention(WIDTH, heads=HEADS, kernel=kernel).double()
    copy_weights(ours.heads, theirs)
    x, memory = noise(BATCH, TIME, WIDTH, seed=3), noise(BATCH, 5, WIDTH, seed=4)
    padding = None if lengths is None else torch.arange(5) >= lengths[:, None]
    expected = theirs(x, memory, memory, key_padding_mask=padding, need_weights=False)[0]
    same_gradients(ours.cross(x, memory, lengths), expected, ours.heads, theirs)


@pytest.mark.parametrize("kernel", KERNELS)
def test_grouped_queries_are_heads_that_share(kernel: str) -> None:
    """With the shared heads written out, it is plain multi-head attention."""
    few = Attention(WIDTH, heads=6, kv_heads=2, kernel=kernel).double()
    fill(few)
    many = Attention(WIDTH, heads=6).double()
    q, k, v = few.heads.w_PI.split(few.heads.sizes)
    bq, bk, bv = few.heads.b_P.split(few.heads.sizes)

    def spread(part: Tensor) -> Tensor:
        return part.view(2, 2, -1).repeat_interleave(3, dim=0).reshape(WIDTH, *part.shape[1:])

    with torch.no_grad():
        many.heads.w_PI.copy_(torch.cat([q, spread(k), spread(v)]))
        many.heads.b_P.copy_(torch.cat([bq, spread(bk), spread(bv)]))
        many.heads.o_DD.copy_(few.heads.o_DD)
        many.heads.b_D.copy_(few.heads.b_D)
    x = noise(BATCH, TIME, WIDTH, seed=5)
    y, state = few(x)
    assert_same(y, many(x)[0])
    assert state.keys_BSGK.shape == (BATCH, TIME, 2, 2)


def basic_by_hand(x: np.ndarray, *, causal: bool) -> np.ndarray:
    y = np.zeros_like(x)
    for i in range(len(x)):
        seen = x[: i + 1] if causal else x
        scores = seen @ x[i]
        weights = np.exp(scores - scores.max())
        y[i] = (weights / weights.sum()) @ seen
    return y


@pytest.mark.parametrize("kernel", KERNELS)
def test_basic_attention_in_numpy(kernel: str) -> None:
    x = noise(BATCH, TIME, WIDTH, seed=6)
    causal, _ = BasicAttention(WIDTH, kernel=kernel).double()(x)
    both = basic_attention(x, wish=kernel)
    ragged = basic_attention(x, LENGTHS, wish=kernel)
    for row, length in enumerate(LENGTHS.tolist()):
        assert_same(causal[row], basic_by_hand(x[row].numpy(), causal=True))
        assert_same(both[row], basic_by_hand(x[row].numpy(), causal=False))
        assert_same(ragged[row, :length], basic_by_hand(x[row, :length].numpy(), causal=False))
        assert not ragged[row, length:].any()


@pytest.mark.parametrize("kernel", KERNELS)
def test_basic_attention_is_a_function_of_a_set(kernel: str) -> None:
    """Permute the inputs and the outputs follow, exactly."""
    x = noise(2, 9, WIDTH, seed=7)
    order = torch.randperm(9, generator=torch.Generator().manual_seed(0))
    permuted = basic_attention(x[:, order], wish=kernel)
    assert (permuted - basic_attention(x, wish=kernel)[:, order]).abs().max() <= 1e-14


@pytest.mark.parametrize("score", ["additive", "concat", "dot", "scaled_dot", "general", "cosine"])
def test_row_a16_a_summary_by_attention_is_its_formula(score: str) -> None:
    """Weights `softmax(score(q, y_s))` over a row's own positions, and the mean by them, in NumPy."""
    reader = build_reader(
        GRUSpec(width=3), entry=nn.Identity(), entry_width=3, bidirectional=True, summary="attention", score=score
    ).double()
    fill(reader)
    assert reader.pool is not None
    with lens("pool.*") as seen, torch.no_grad():
        outputs_BSC, summary_BC, _ = reader(noise(BATCH, TIME, 3, seed=1), LENGTHS)
    weights_BS = seen["pool.attend.weights"].flatten(1).numpy()
    q = reader.pool.query_Q.detach().numpy()
    p = {name: value.detach().numpy() for name, value in reader.pool.attend.score.named_parameters()}
    formula = {
        "additive": lambda k: p["v_A"] @ np.tanh(p["w_AQ"] @ q + p["u_AK"] @ k + p["b_A"]),
        "concat": lambda k: p["v_A"] @ np.tanh(np.hstack([p["w_AQ"], p["u_AK"]]) @ np.hstack([q, k])),
        "dot": lambda k: q @ k,
        "scaled_dot": lambda k: q @ k / np.sqrt(len(k)),
        "general": lambda k: q @ p["w_QK"] @ k,
        "cosine": lambda k: p["sharpness"] * (q @ k) / np.linalg.norm(q) / np.linalg.norm(k),
    }[score]
    for row, length in enumerate(LENGTHS.tolist()):
        y_SC = outputs_BSC[row, :length].numpy()
        grown = np.exp([formula(y_C) for y_C in y_SC])
        np.testing.assert_allclose(weights_BS[row, :length], grown / grown.sum(), rtol=0, atol=1e-12)
        assert (weights_BS[row, length:] == 0).all()
        expected = weights_BS[row, :length] @ y_SC
        np.testing.assert_allclose(summary_BC[row].numpy(), expected, rtol=0, atol=1e-12)
