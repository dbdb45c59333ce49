"""Test-time training against what it must be: autograd on the inner loss, linear attention, the delta rule."""

from typing import Any

import pytest
import torch
from agreement import assert_same, fill, noise
from torch import Tensor
from torch.nn import functional as F

from statewise.kernels.gated_delta import gated_delta
from statewise.kernels.ttt import Carried, ttt
from statewise.mixers import TTT, LinearAttention

BATCH, TIME, INPUT, WIDTH, HEADS = 2, 11, 5, 6, 2
HEAD = WIDTH // HEADS
X = noise(BATCH, TIME, INPUT, seed=1)
KERNELS = pytest.mark.parametrize("kernel", ["naive", "batched"])


def inner_model(mixer: TTT, x: Tensor, weights: list[Tensor], head: int) -> Tensor:
    """As the paper says it, with PyTorch's own layer norm."""
    r = x @ weights[0]
    if len(weights) == 2:
        r = F.gelu(r) @ weights[1]
    if mixer.gain_HK is None or mixer.bias_HK is None:
        return r
    return x + F.layer_norm(r, (HEAD,), mixer.gain_HK[head], mixer.bias_HK[head], eps=1e-6)


def by_autograd(mixer: TTT, x: Tensor, rate: float) -> tuple[Tensor, list[list[Tensor]]]:
    """One row, head by head: PyTorch differentiates the inner loss, and mini-batches are counted by the clock."""
    w_q, w_k, w_v = mixer.w_GI.detach().chunk(3)
    y, ends = torch.zeros(len(x), WIDTH, dtype=torch.float64), []
    for h in range(HEADS):
        at = slice(h * HEAD, (h + 1) * HEAD)
        begin = [weight[h].detach().clone().requires_grad_() for weight in mixer.start]
        total = [torch.zeros_like(weight) for weight in begin]
        for t, x_t in enumerate(x):
            q, k, v = (x_t @ w[at].T for w in (w_q, w_k, w_v))
            loss = 0.5 * (inner_model(mixer, k, begin, h) - v).square().sum()
            eta = rate / HEAD * torch.sigmoid(x_t @ mixer.w_rate_HI[h] + mixer.b_rate_H[h]).item()
            total = [s + eta * g for s, g in zip(total, torch.autograd.grad(loss, begin), strict=True)]
            now = [weight.detach() - s for weight, s in zip(begin, total, strict=True)]
            y[t, at] = inner_model(mixer, q, now, h).detach()
            if (t + 1) % mixer.mini_batch == 0:
                begin = [weight.requires_grad_() for weight in now]
                total = [torch.zeros_like(weight) for weight in begin]
        ends.append([weight.detach() - s for weight, s in zip(begin, total, strict=True)])
    return y @ mixer.w_out_DD.detach().T, ends


@KERNELS
@pytest.mark.parametrize("mini_batch", [1, 4, 11, 16])
@pytest.mark.parametrize("inner", ["linear", "mlp"])
@pytest.mark.parametrize("inner_norm", [True, False])
def test_each_token_is_one_step_on_its_own_loss(inner: str, inner_norm: bool, mini_batch: int, kernel: str) -> None:
    options: dict[str, Any] = {"inner": inner, "inner_norm": inner_norm, "mini_batch": mini_batch, "kernel": kernel}
    mixer = TTT(WIDTH, input_width=INPUT, heads=HEADS, rate=0.7, **options).double()
    fill(mixer)
    y, state = mixer(X)
    for row in range(BATCH):
        expected_y, ends = by_autograd(mixer, X[row], 0.7)
        assert_same(y[row].detach(), expected_y)
        for h in range(HEADS):
            for layer, expected in enumerate(ends[h]):
                got = mixer.start[layer][h] + state.change[layer][row, h] - state.pending[layer][row, h]
                assert_same(got.detach(), expected)
    assert (state.left_B == mini_batch - TIME % mini_batch).all()


@KERNELS
def test_from_zero_with_one_gradient_for_all_it_is_linear_attention(kernel: str) -> None:
    """Sun et al. 2024, theorem 1: W_t = η Σ kᵀv. Exactly, but for the constants both have."""
    options: dict[str, Any] = {"mini_batch": TIME, "inner_norm": False, "kernel": kernel, "rate": 0.8}
    mixer = TTT(WIDTH, input_width=INPUT, heads=HEADS, **options).double()
    other = LinearAttention(WIDTH, input_width=INPUT, heads=HEADS, feature="identity").double()
    fill(mixer)
    with torch.no_grad():
        mixer.start[0].zero_()
        mixer.w_rate_HI.zero_()
        mixer.b_rate_H.zero_()
        other.w_GI.copy_(mixer.w_GI)
        other.w_out_DD.copy_(mixer.w_out_DD)
    eta = 0.8 / HEAD / 2
    y, state = mixer(X)
    expected, sums = other(X)
    assert_same((y / eta).detach(), (expected * HEAD**0.5).detach())
    assert_same((state.change[0] / eta).detach(), sums.kv_BHKK.detach())


@KERNELS
def test_online_without_a_norm_it_is_the_delta_rule(kernel: str) -> None:
    q, k, v = (noise(BATCH, TIME, HEADS, HEAD, seed=n, scale=0.7) for n in range(3))
    rate = torch.sigmoid(noise(BATCH, TIME, HEADS, seed=3))
    start, change = noise(HEADS, HEAD, HEAD, seed=4), noise(BATCH, HEADS, HEAD, HEAD, seed=5)
    before = Carried((change,), (torch.zeros_like(change),), torch.ones(BATCH, dtype=torch.int64))
    y, after = ttt(q, k, v, rate, before, (start,), mini_batch=1, wish=kernel)
    expected, s = gated_delta(q, k, v, rate, torch.zeros_like(rate), start + change)
    assert_same(y, expected)
    assert_same(start + after.change[0], s)
