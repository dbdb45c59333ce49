"""The grid: its equation in NumPy, by diagonals as cell by cell, causal from each corner; one row alone is a line."""

import numpy as np
import pytest
import torch
from agreement import assert_same, fill, noise
from torch import Tensor, nn

from statewise.encoders import GridEncoder
from statewise.encoders.grid import CORNERS
from statewise.kernels.grid import GridWeights, batched, naive
from statewise.specs import UserError

INPUT, WIDTH = 3, 4
SIZES = [(1, 1), (1, 6), (6, 1), (2, 2), (3, 5), (5, 3), (4, 4)]


@pytest.mark.parametrize("run", [naive.grid, batched.grid], ids=["naive", "batched"])
@pytest.mark.parametrize(("height", "width"), SIZES)
def test_the_equation_in_numpy(run, height: int, width: int) -> None:
    x = noise(2, height, width, INPUT, seed=1)
    w, u, v, b = (noise(*s, seed=n, scale=0.5) for n, s in enumerate([(4, 3), (4, 4), (4, 4), (4,)]))
    got = run(x, GridWeights(w, u, v, b))
    h = np.zeros((2, height + 1, width + 1, WIDTH))  # a border of nothing above and on the left
    for i in range(height):
        for j in range(width):
            a = x[:, i, j].numpy() @ w.numpy().T + b.numpy()
            h[:, i + 1, j + 1] = np.tanh(a + h[:, i, j + 1] @ u.numpy().T + h[:, i + 1, j] @ v.numpy().T)
    assert_same(got, h[:, 1:, 1:])


def encoder(kernel: str = "auto") -> GridEncoder:
    made = GridEncoder(WIDTH, input_width=INPUT, kernel=kernel).double()
    fill(made)
    return made


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize(("height", "width"), SIZES)
def test_by_diagonals_is_cell_by_cell(height: int, width: int, ragged: bool) -> None:
    sizes = torch.tensor([[height, width], [1, width], [height, (width + 1) // 2], [0, width]]) if ragged else None
    results: list[list[Tensor]] = []
    for kernel in ("naive", "batched"):
        made = encoder(kernel)
        x = noise(4, height, width, INPUT, seed=1).requires_grad_()
        y = made(x, sizes)
        (y * noise(*y.shape, seed=2)).sum().backward()
        results.append([y.detach(), x.grad, *(p.grad for p in made.parameters())])
    for got, expected in zip(*results, strict=True):
        assert_same(got, expected)


@pytest.mark.parametrize("number", range(4), ids=CORNERS)
def test_each_reading_sees_what_lies_towards_its_corner(number: int) -> None:
    made = encoder()
    x = noise(1, 4, 5, INPUT, seed=1).requires_grad_()
    for i in range(4):
        for j in range(5):
            y = made(x)[0, i, j, number * WIDTH : (number + 1) * WIDTH].sum()
            (gradient,) = torch.autograd.grad(y, x)
            seen_HW = gradient[0].abs().sum(-1) > 0
            rows, columns = torch.arange(4)[:, None], torch.arange(5)[None]
            above = rows <= i if CORNERS[number].startswith("upper") else rows >= i
            beside = columns <= j if CORNERS[number].endswith("left") else columns >= j
            assert torch.equal(seen_HW, above & beside)


def test_all_four_together_see_everything() -> None:
    x = noise(1, 4, 5, INPUT, seed=1).requires_grad_()
    (gradient,) = torch.autograd.grad(encoder()(x)[0, 2, 2].sum(), x)
    assert (gradient.abs().sum(-1) > 0).all()


def test_a_single_row_is_a_bidirectional_network() -> None:
    """torch.nn's own, in the two readings from above."""
    made = encoder()
    theirs = nn.RNN(INPUT, WIDTH, bidirectional=True, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        for number, suffix in ((0, ""), (1, "_reverse")):
            getattr(theirs, f"weight_ih_l0{suffix}").copy_(made.w_QDI[number])
            getattr(theirs, f"weight_hh_l0{suffix}").copy_(made.v_QDD[number])
            getattr(theirs, f"bias_ih_l0{suffix}").copy_(made.b_QD[number])
            getattr(theirs, f"bias_hh_l0{suffix}").zero_()
    x = noise(3, 1, 7, INPUT, seed=1)
    assert_same(made(x)[:, 0, :, : 2 * WIDTH].detach(), theirs(x[:, 0])[0].detach())


def test_grids_of_their_own_size() -> None:
    made = encoder()
    x, sizes = noise(4, 5, 6, INPUT, seed=1), torch.tensor([[5, 6], [2, 3], [1, 1], [0, 4]])
    spoiled = x.clone()
    for row, (height, width) in enumerate(sizes.tolist()):
        spoiled[row, height:] = 1e3
        spoiled[row, :, width:] = 1e3
    y = made(x, sizes)
    assert torch.equal(y, made(spoiled, sizes))
    for row, (height, width) in enumerate(sizes.tolist()):
        assert not y[row, height:].any()
        assert not y[row, :, width:].any()
        if height and width:
            alone = made(x[row : row + 1, :height, :width])
            assert_same(y[row : row + 1, :height, :width].detach(), alone.detach())


def test_what_is_no_grid_is_refused() -> None:
    with pytest.raises(UserError, match=r"\[2, 3, 3\], expected"):
        encoder()(noise(2, 3, INPUT, seed=0))
    with pytest.raises(UserError, match="pairs of whole numbers"):
        encoder()(noise(2, 3, 3, INPUT, seed=0), torch.tensor([3, 3]))
