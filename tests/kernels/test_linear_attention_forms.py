"""Linear attention and the gated delta rule: the forms in chunks (and the quadratic one) against the loops."""

from collections.abc import Callable

import pytest
import torch
from forms import BATCH, TIMES, difference, noise, ragged
from torch import Tensor

from statewise.kernels.gated_delta import chunked as delta_chunked
from statewise.kernels.gated_delta import naive as delta_naive
from statewise.kernels.linear_attention import chunked, naive, quadratic

HEADS, KEY, VALUE = 2, 4, 3


def case(time: int, *, delta: bool, decay: float) -> tuple[list[Tensor], list[Tensor]]:
    q, k, v = (noise(BATCH, time, HEADS, size, seed=size + n) for n, size in enumerate((KEY, KEY, VALUE)))
    g = -decay * noise(BATCH, time, HEADS, seed=3).abs()
    beta = torch.sigmoid(noise(BATCH, time, HEADS, seed=4))
    k = torch.nn.functional.normalize(k, dim=-1) if delta else k
    return [q, k, v, beta, g] if delta else [q, k, v, g], [noise(BATCH, HEADS, KEY, VALUE, seed=5)]


def form(run: Callable[..., tuple[Tensor, ...]], **options: int) -> Callable[..., tuple[Tensor, ...]]:
    return lambda inputs, states, lengths_B: run(tuple(inputs), *states, lengths_B, **options)


PAIRS = {
    "chunked": (form(chunked.linear_attention), form(naive.linear_attention), False),
    "chunks of 5": (form(chunked.linear_attention, chunk=5), form(naive.linear_attention), False),
    "quadratic": (form(quadratic.linear_attention), form(naive.linear_attention), False),
    "delta": (form(delta_chunked.gated_delta), form(delta_naive.gated_delta), True),
    "delta in chunks of 5": (form(delta_chunked.gated_delta, chunk=5), form(delta_naive.gated_delta), True),
}


@pytest.mark.parametrize("decay", [0.0, 0.3, 300.0], ids=["no decay", "decay", "all forgotten"])
@pytest.mark.parametrize("rows", ["full", "ragged"])
@pytest.mark.parametrize("time", TIMES)
@pytest.mark.parametrize("name", PAIRS)
def test_every_form_is_the_loop(name: str, time: int, rows: str, decay: float) -> None:
    fast, slow, delta = PAIRS[name]
    lengths_B = ragged(time) if rows == "ragged" else None
    assert difference(fast, slow, *case(time, delta=delta, decay=decay), lengths_B) <= 1e-10


@pytest.mark.parametrize("name", PAIRS)
def test_padding_is_not_read(name: str) -> None:
    fast, _, delta = PAIRS[name]
    inputs, states = case(7, delta=delta, decay=0.3)
    past_BT = torch.arange(7) >= ragged(7)[:, None]
    dirty = [
        value.masked_fill(past_BT.view(BATCH, 7, *[1] * (value.dim() - 2)), float("nan")).requires_grad_()
        for value in inputs
    ]
    results = fast(dirty, states, ragged(7))
    for got, expected in zip(results, fast(inputs, states, ragged(7)), strict=True):
        assert torch.equal(got, expected)
    assert (results[0][past_BT] == 0).all()
    for gradient in torch.autograd.grad(results[0].sum() + results[1].sum(), dirty):
        assert (gradient[past_BT] == 0).all()
        assert gradient.isfinite().all()
