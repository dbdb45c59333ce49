"""Matrices turned into nearly orthogonal ones: one at a time as it is written, and all of a shape at once."""

from statewise.kernels.orthogonal.batched import orthogonal as orthogonal
