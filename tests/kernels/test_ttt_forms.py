"""Test-time training: the dual form against the primal one, and the gradient by hand against autograd."""

import pytest
import torch
from covering import covered
from forms import BATCH, TIMES, difference, noise, ragged
from torch import Tensor

from statewise.kernels.ttt import Carried, InnerNorm, dual, naive
from statewise.kernels.ttt.inner import inner_gradient, shown

HEADS, HEAD, HIDDEN = 2, 3, 5
SHAPES = {"linear": [(HEAD, HEAD)], "mlp": [(HEAD, HIDDEN), (HIDDEN, HEAD)]}


def case(inner: str, time: int, *, mini_batch: int, places: str) -> tuple[list[Tensor], list[Tensor]]:
    """q, k, v, rates, the start, the norm; then change, pending and what is left, rows at places of their own."""
    shapes = SHAPES[inner]
    qkv = [noise(BATCH, time, HEADS, HEAD, seed=n) for n in range(3)]
    rate = 0.3 * torch.sigmoid(noise(BATCH, time, HEADS, seed=3))
    start = [noise(HEADS, *shape, seed=4 + n, scale=0.5) for n, shape in enumerate(shapes)]
    norm = [1 + noise(HEADS, HEAD, seed=6, scale=0.2), noise(HEADS, HEAD, seed=7, scale=0.2)]
    carried = [noise(BATCH, HEADS, *shape, seed=8 + n, scale=0.3) for n, shape in enumerate(2 * shapes)]
    left = [mini_batch] * BATCH if places == "together" else [1 + (3 * n) % mini_batch for n in range(BATCH)]
    return [*qkv, rate, *start, *norm], [*carried, torch.tensor(left)]


def form(module: object, inner: str, *, normed: bool, mini_batch: int):
    layers = len(SHAPES[inner])

    def run(inputs: list[Tensor], states: list[Tensor], lengths_B: Tensor | None) -> tuple[Tensor, ...]:
        start, norm = tuple(inputs[4 : 4 + layers]), InnerNorm(*inputs[-2:]) if normed else None
        state = Carried(tuple(states[:layers]), tuple(states[layers:-1]), states[-1])
        y, after = module.ttt(tuple(inputs[:4]), state, start, norm, mini_batch, lengths_B)
        # The count as numbers with a point, so that it is compared too.
        return y, *after.change, *after.pending, after.left_B.double()

    return run


@covered(
    "inner, normed, mini_batch, time, rows",
    *(list(SHAPES), {"norm": True, "bare": False}, [1, 4, 16], TIMES, ["full", "ragged"]),
    strength=3,
)
def test_dual_is_primal(inner: str, normed: bool, mini_batch: int, time: int, rows: str) -> None:
    forms = [form(module, inner, normed=normed, mini_batch=mini_batch) for module in (dual, naive)]
    inputs, states = case(inner, time, mini_batch=mini_batch, places="apart")
    if not normed:
        inputs[3] = 0.1 * inputs[3]  # a bare inner model learns without brakes, and diverges at a high rate
    assert difference(*forms, inputs, states, ragged(time) if rows == "ragged" else None) <= 1e-10


@pytest.mark.parametrize("normed", [True, False], ids=["norm", "bare"])
@pytest.mark.parametrize("inner", SHAPES)
def test_the_gradient_by_hand_is_autograds(inner: str, normed: bool) -> None:
    k, v = noise(HEADS, HEAD, seed=1)[None], noise(HEADS, HEAD, seed=2)[None]
    weights = tuple(noise(1, HEADS, *shape, seed=3 + n).requires_grad_() for n, shape in enumerate(SHAPES[inner]))
    norm = InnerNorm(1 + noise(HEADS, HEAD, seed=5), noise(HEADS, HEAD, seed=6)) if normed else None
    r = (k[..., None, :] @ weights[0])[..., 0, :]
    if inner == "mlp":
        r = (torch.nn.functional.gelu(r)[..., None, :] @ weights[1])[..., 0, :]
    hat = torch.nn.functional.layer_norm(r, (HEAD,), eps=1e-6)
    f = k + hat * norm.gain_HK + norm.bias_HK if norm else r
    torch.testing.assert_close(shown(k, r, norm), f, rtol=1e-12, atol=1e-12)
    loss = 0.5 * (f - v).square().sum(-1)
    found = inner_gradient(k, v, weights, norm, rows=False)
    torch.testing.assert_close(found.loss, loss, rtol=1e-12, atol=1e-12)
    expected = torch.autograd.grad(loss.sum(), weights)
    for gradient, x, error in zip(expected, found.inputs, found.errors, strict=True):
        torch.testing.assert_close(x[..., :, None] * error[..., None, :], gradient, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("inner", SHAPES)
def test_padding_is_not_read(inner: str) -> None:
    run = form(dual, inner, normed=True, mini_batch=4)
    inputs, states = case(inner, 7, mini_batch=4, places="apart")
    past_BT = torch.arange(7) >= ragged(7)[:, None]
    dirty = [
        value.masked_fill(past_BT.view(BATCH, 7, *[1] * (value.dim() - 2)), float("nan")).requires_grad_()
        for value in inputs[:4]
    ]
    results = run([*dirty, *inputs[4:]], states, ragged(7))
    for got, expected in zip(results, run(inputs, states, ragged(7)), strict=True):
        assert torch.equal(got, expected)
    for gradient in torch.autograd.grad(sum(part.sum() for part in results), dirty):
        assert (gradient[past_BT] == 0).all()
        assert gradient.isfinite().all()
