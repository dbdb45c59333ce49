"""Positions against their papers' formulas, in NumPy and complex numbers."""

import numpy as np
import pytest
import torch
from agreement import assert_same, fill, noise

from statewise.encoders import MultiHeadAttention, TransformerEncoder
from statewise.kernels.rotary import rotate
from statewise.layers import alibi_slopes, sinusoid
from statewise.models.add_position import AddPosition

AT = torch.tensor([[0, 1, 2, 3], [17, 18, 19, 20], [999, 1000, 1001, 1002]])
LIKE = torch.zeros((), dtype=torch.float64)


@pytest.mark.parametrize("width", [1, 2, 7, 12])
def test_sinusoid_is_the_formula_of_2017(width: int) -> None:
    got = sinusoid(AT, width, like=LIKE)
    even_width = width + width % 2
    expected = np.empty((*AT.shape, width))
    for unit in range(width):
        angle = AT.numpy() / 10_000 ** (2 * (unit // 2) / even_width)
        expected[..., unit] = np.sin(angle) if unit % 2 == 0 else np.cos(angle)
    assert_same(got, expected)


@pytest.mark.parametrize("base", [10_000.0, 500_000.0])
@pytest.mark.parametrize("width", [2, 8, 9])
def test_rotary_is_a_product_with_a_complex_number_of_length_1(width: int, base: float) -> None:
    x = noise(3, 4, 2, width, seed=0)
    half = width // 2
    pairs = x[..., :half].numpy() + 1j * x[..., half : 2 * half].numpy()
    theta = base ** (-2 * np.arange(half) / (2 * half))
    turned = pairs * np.exp(1j * AT.numpy()[:, :, None, None] * theta)
    expected = np.concatenate([turned.real, turned.imag, x[..., 2 * half :].numpy()], axis=-1)
    assert_same(rotate(x, AT, base=base), expected)


def test_rotary_products_depend_on_distance_alone() -> None:
    q, k = noise(1, 4, 1, 8, seed=1), noise(1, 4, 1, 8, seed=2)
    near, far = torch.tensor([[0, 1, 2, 3]]), torch.tensor([[500, 501, 502, 503]])
    products = [rotate(q, at, base=1e4)[0, :, 0] @ rotate(k, at, base=1e4)[0, :, 0].T for at in (near, far)]
    assert_same(products[0], products[1], tolerance=1e-11)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_positions_keep_their_digits_after_twenty_million_tokens(dtype: torch.dtype) -> None:
    at_BT = 20_000_000 + torch.arange(7)[None]
    x = noise(1, 7, 2, 32, seed=3).to(dtype)
    far = {"rotary": rotate(x, at_BT, base=1e4), "sinusoidal": sinusoid(at_BT, 32, like=x)}
    exact = {"rotary": rotate(x.double(), at_BT, base=1e4), "sinusoidal": sinusoid(at_BT, 32, like=LIKE)}
    for name, value in exact.items():
        assert_same(far[name].double(), value, tolerance=4 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("heads", [1, 2, 4, 8, 16])
def test_alibi_slopes_are_a_geometric_sequence(heads: int) -> None:
    start = 2 ** (-8 / heads)
    assert_same(alibi_slopes(heads, like=LIKE), np.array([start ** (i + 1) for i in range(heads)]))


def test_alibi_slopes_between_powers_of_two() -> None:
    """The rule the paper's authors give: the lower power's, then every second one of the higher power's."""
    for heads, lower in [(3, 2), (6, 4), (12, 8)]:
        higher = alibi_slopes(2 * lower, like=LIKE)[::2][: heads - lower]
        assert_same(alibi_slopes(heads, like=LIKE), torch.cat([alibi_slopes(lower, like=LIKE), higher]))


@pytest.mark.parametrize("kernel", ["fused", "naive"])
def test_alibi_lowers_scores_by_slope_times_distance(kernel: str) -> None:
    attention = MultiHeadAttention(6, heads=2, position="alibi", kernel=kernel).double()
    fill(attention)
    x = noise(1, 5, 6, seed=3)
    q, k, v = attention.heads.project(x)
    distance = (torch.arange(5)[:, None] - torch.arange(5)).abs()
    heads = []
    for head, slope in enumerate([2**-4, 2**-8]):
        scores = q[0, :, head] @ k[0, :, head].T / 3**0.5 - slope * distance
        heads.append(torch.softmax(scores, -1) @ v[0, :, head])
    assert_same(attention(x), attention.heads.join(torch.stack(heads, 1)[None]))


@pytest.mark.parametrize("kind", ["learned", "sinusoidal"])
def test_added_positions_know_where_each_row_is(kind: str) -> None:
    """Rows of different lengths, read in two parts: every row gets the vectors of its own positions."""
    machine = AddPosition(6, kind=kind, context=20).double()
    x, more = noise(3, 5, 6, seed=4), noise(3, 2, 6, seed=5)
    lengths = torch.tensor([5, 2, 0])
    _, at = machine(x, None, lengths)
    y, at = machine(more, at)
    table = machine.weight_PD if kind == "learned" else sinusoid(torch.arange(20), 6, like=LIKE)
    for row, length in enumerate(lengths.tolist()):
        assert_same(y[row], more[row] + table[length : length + 2])
    assert at.tolist() == [7, 4, 2]


@pytest.mark.parametrize("position", ["none", "learned", "sinusoidal", "rotary", "alibi"])
def test_order_matters_exactly_where_positions_are_told(position: str) -> None:
    encoder = TransformerEncoder(12, depth=2, heads=3, position=position, context=9).double()
    fill(encoder)
    x = noise(2, 9, 12, seed=6)
    order = torch.randperm(9, generator=torch.Generator().manual_seed(1))
    error = (encoder(x[:, order]) - encoder(x)[:, order]).abs().max()
    if position == "none":
        assert error <= 1e-13
    else:
        assert error > 1e-3
