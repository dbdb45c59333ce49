"""Linear attention in chunks: inside a chunk as attention, between chunks by the state.

With G_t = g_1 + … + g_t counted from the chunk's beginning, and S what the chunk began with,

    y_t = e^{G_t} Sᵀ q_t + Σ_{s ≤ t} e^{G_t - G_s} (q_t · k_s) v_s
    S'  = e^{G_C} S      + Σ_s      e^{G_C - G_s} k_s v_sᵀ

Every exponent is at most 0, so nothing can overflow however strong the decay.

B batch, T time, H heads, K key width, V value width, N chunks, C and S time steps in a chunk.
"""

import torch
from torch import Tensor

from statewise.kernels.associative_memory import Inputs
from statewise.kernels.time_axis import in_chunks, past_end

CHUNK = 32


def decay_between(g_BHNC: Tensor) -> tuple[Tensor, Tensor]:
    """From log decays: G_t of each chunk, and e^{G_t - G_s} for s ≤ t, 0 above."""
    total_BHNC = g_BHNC.cumsum(-1)
    between_BHNCS = total_BHNC[..., :, None] - total_BHNC[..., None, :]
    chunk = g_BHNC.shape[-1]
    later_CS = torch.ones(chunk, chunk, dtype=torch.bool, device=g_BHNC.device).triu(1)
    # Above the diagonal exponents are positive: filled before the exponential, not after, where inf · 0 waits.
    return total_BHNC, between_BHNCS.masked_fill(later_CS, float("-inf")).exp()


def by_head(x_BTH: Tensor, chunk: int) -> Tensor:
    """`[B, T, H, ...]` to `[B, H, N, C, ...]`; what fills the last chunk up is 0 and changes no state."""
    return in_chunks(x_BTH, chunk).movedim(3, 1)


def within_rows(inputs: Inputs, lengths_B: Tensor | None) -> Inputs:
    """Zeros past each row's end."""
    return inputs if lengths_B is None else tuple(past_end(value, lengths_B) for value in inputs)


def linear_attention(
    inputs: Inputs, s_BHKV: Tensor, lengths_B: Tensor | None, *, chunk: int = CHUNK
) -> tuple[Tensor, Tensor]:
    time, inputs = inputs[0].shape[1], within_rows(inputs, lengths_B)
    q_BHNCK, k_BHNCK, v_BHNCV, g_BHNC = (by_head(value, min(chunk, time)) for value in inputs)
    total_BHNC, between_BHNCS = decay_between(g_BHNC)
    end_BHN = total_BHNC[..., -1]

    written_BHNKV = (k_BHNCK * between_BHNCS[..., -1, :, None]).mT @ v_BHNCV
    begins = []
    for n in range(end_BHN.shape[-1]):
        begins.append(s_BHKV)
        s_BHKV = end_BHN[:, :, n, None, None].exp() * s_BHKV + written_BHNKV[:, :, n]
    begin_BHNKV = torch.stack(begins, dim=2)

    inside_BHNCV = (between_BHNCS * (q_BHNCK @ k_BHNCK.mT)) @ v_BHNCV
    before_BHNCV = total_BHNC.exp()[..., None] * (q_BHNCK @ begin_BHNKV)
    y_BTHV = (inside_BHNCV + before_BHNCV).movedim(1, 3).flatten(1, 2)[:, :time]
    return (y_BTHV if lengths_B is None else past_end(y_BTHV, lengths_B)), s_BHKV
