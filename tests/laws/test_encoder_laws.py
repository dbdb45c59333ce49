"""What holds for every encoder that is listed: rows do not meet, and padding is nothing."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from statewise.core import Encoder
from statewise.models import ENCODERS

LISTED = [
    pytest.param(make, encoding.axes, id=f"{encoding.name}-{number}")
    for encoding in ENCODERS
    for number, make in enumerate((encoding.make, *encoding.variants))
]
each = pytest.mark.parametrize(("make", "axes"), LISTED)
LONGEST, ROWS = (5, 4), 4
SIZES = [[5, 4], [2, 1], [1, 3], [3, 4]]


def prepared(make: Callable[[], Encoder], axes: int) -> tuple[Encoder, Tensor, Tensor]:
    """In float64 with no parameter at 0 or 1, an input as large as the longest row, and each row's own size."""
    generator = torch.Generator().manual_seed(0)
    encoder = make().double().eval()
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, dtype=torch.float64, generator=generator)
    width = int(encoder.input_width)  # every encoder here has one
    x = torch.randn(ROWS, *LONGEST[:axes], width, dtype=torch.float64, generator=generator)
    sizes = torch.tensor(SIZES)
    return encoder, x, sizes if axes == 2 else sizes[:, 0]


def inside(x: Tensor, row: int) -> tuple[int | slice, ...]:
    """The part of the input that is row's own."""
    return (row, *(slice(size) for size in SIZES[row][: x.dim() - 2]))


@each
def test_rows_do_not_meet(make: Callable[[], Encoder], axes: int) -> None:
    encoder, x, sizes = prepared(make, axes)
    order = torch.tensor([2, 0, 3])
    torch.testing.assert_close(encoder(x[order], sizes[order]), encoder(x, sizes)[order], rtol=0, atol=1e-10)


@each
def test_a_row_is_what_it_is_alone(make: Callable[[], Encoder], axes: int) -> None:
    """Outputs and gradients; and past its end a row is silent."""
    encoder, x, sizes = prepared(make, axes)
    x.requires_grad_()
    y = encoder(x, sizes)
    (gradient,) = torch.autograd.grad(y.square().sum(), x)
    for row in range(ROWS):
        own = x[inside(x, row)][None].detach().requires_grad_()
        alone = encoder(own)
        (own_gradient,) = torch.autograd.grad(alone.square().sum(), own)
        torch.testing.assert_close(gradient[inside(x, row)], own_gradient[0], rtol=0, atol=1e-9)
        whole = y.dim() == 2  # one vector for all of it, or one for each place
        place = (row,) if whole else inside(x, row)
        torch.testing.assert_close(y[place], alone[0], rtol=0, atol=1e-10)
        if not whole:
            outside = torch.ones(LONGEST[:axes], dtype=torch.bool)
            outside[place[1:]] = False
            assert (y[row][outside] == 0).all()
            assert (gradient[row][outside] == 0).all()


@each
def test_what_padding_holds_does_not_matter(make: Callable[[], Encoder], axes: int) -> None:
    encoder, x, sizes = prepared(make, axes)
    broken = torch.full_like(x, torch.nan)
    for row in range(ROWS):
        broken[inside(x, row)] = x[inside(x, row)]
    for given in (x, broken):
        given.requires_grad_()
    outputs = [encoder(given, sizes) for given in (broken, x)]
    torch.testing.assert_close(*outputs, rtol=0, atol=0)
    for y in outputs:
        y.square().sum().backward()
    torch.testing.assert_close(broken.grad, x.grad, rtol=0, atol=0)
    assert all(parameter.grad is None or parameter.grad.isfinite().all() for parameter in encoder.parameters())
