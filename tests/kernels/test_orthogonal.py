"""Matrices made orthogonal: all of a shape at once against one at a time, and both against what orthogonal means."""

import pytest
import torch
from torch import Tensor

from statewise.kernels.orthogonal import batched, naive

SHAPES = [(1, 1), (1, 7), (7, 1), (5, 5), (63, 64), (64, 63), (65, 16), (16, 65), (5, 5), (16, 65)]


def matrices(dtype: torch.dtype = torch.float64) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in SHAPES]


def test_together_as_one_by_one() -> None:
    given = matrices()
    given[3] = given[3].mT  # whose memory lies the other way
    before = [matrix.clone() for matrix in given]
    found = batched.orthogonal(given)
    for matrix, kept, one in zip(given, before, found, strict=True):
        torch.testing.assert_close(one, naive.orthogonal(matrix), rtol=0, atol=1e-12)
        torch.testing.assert_close(matrix, kept, rtol=0, atol=0)


@pytest.mark.parametrize("form", [naive.orthogonal, lambda matrix: batched.orthogonal([matrix])[0]])
def test_directions_stay_and_values_come_near_one(form: object) -> None:
    """By torch's singular values: the directions of the result are those of the matrix, whatever its scale."""
    for matrix in matrices():
        left, values, right = torch.linalg.svd(1e3 * matrix, full_matrices=False)
        inside = left.mT @ form(1e3 * matrix) @ right.mT
        torch.testing.assert_close(inside, torch.diag(inside.diagonal()), rtol=0, atol=1e-9)
        large = values > 0.02 * values.norm()
        assert inside.diagonal()[large].min() > 0.6
        assert inside.diagonal().max() < 1.3


def test_nothing_stays_nothing() -> None:
    (found,) = batched.orthogonal([torch.zeros(3, 4)])
    assert torch.equal(found, torch.zeros(3, 4))
    assert batched.orthogonal([]) == []


def test_void_is_zero_even_of_what_is_not_a_number() -> None:
    given = [torch.full((3, 4), torch.nan), torch.ones(4, 3)]
    for found, shape in zip(batched.orthogonal(given, void=torch.tensor(True)), [(3, 4), (4, 3)], strict=True):
        assert torch.equal(found, torch.zeros(shape))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_coarser_format_stays_in_the_band(dtype: torch.dtype) -> None:
    for one, matrix in zip(batched.orthogonal(matrices(), dtype=dtype), matrices(), strict=True):
        assert one.dtype == matrix.dtype
        torch.testing.assert_close(one, naive.orthogonal(matrix), rtol=0, atol=0.1 if dtype == torch.bfloat16 else 1e-5)


@pytest.mark.gpu
def test_together_on_a_gpu() -> None:
    given = matrices(torch.bfloat16)
    for one, matrix in zip(batched.orthogonal([m.cuda() for m in given]), given, strict=True):
        torch.testing.assert_close(one.double().cpu(), naive.orthogonal(matrix.double()), rtol=0, atol=0.05)
