"""A recurrence on a grid: cell by cell, by anti-diagonals, and the choice between them."""

from torch import Tensor

from statewise.core import is_symbolic
from statewise.kernels.choice import Choice, Wish, choose
from statewise.kernels.grid import batched, naive
from statewise.kernels.grid.naive import GridWeights as GridWeights


def choice(*, wish: Wish = "auto") -> Choice:
    return choose("grid", obstacles=[], wish=wish, fast=["batched"])


def grid(x_BHWI: Tensor, weights: GridWeights, *, wish: Wish = "auto") -> Tensor:
    if is_symbolic(x_BHWI.shape[1]) or is_symbolic(x_BHWI.shape[2]):
        return batched.any_size(x_BHWI, weights)
    run = batched.grid if choice(wish=wish).implementation == "batched" else naive.grid
    return run(x_BHWI, weights)
