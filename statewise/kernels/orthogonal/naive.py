"""The matrix with the same singular directions and all singular values near 1, by products alone.

`X ← X / ‖X‖`, then five times `X ← aX + (bA + cA²)X` with `A = XXᵀ`: on every singular value this is the odd polynomial
`s ← as + bs³ + cs⁵`, steep at 0, which leads all of them into a band around 1 and not to 1 itself (Jordan et al. 2024).
"""

from torch import Tensor

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
STEPS = 5
SMALLEST = 1e-7  # a norm to divide by


def orthogonal(x_RC: Tensor) -> Tensor:
    """Of one matrix."""
    a, b, c = COEFFICIENTS
    x_SL: Tensor = x_RC.mT if x_RC.shape[0] > x_RC.shape[1] else x_RC  # the smaller of both Gram matrices
    x_SL = x_SL / x_SL.norm().clamp(min=SMALLEST)
    for _ in range(STEPS):
        gram_SS = x_SL @ x_SL.mT
        x_SL = a * x_SL + (b * gram_SS + c * gram_SS @ gram_SS) @ x_SL
    return x_SL.mT if x_RC.shape[0] > x_RC.shape[1] else x_SL
