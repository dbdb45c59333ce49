"""The gated delta rule in chunks: find what is really written, then proceed as linear attention does.

Call u_t = β_t (v_t - e^{g_t} S_{t-1}ᵀ k_t) what is written at t. Then S_t = e^{g_t} S_{t-1} + k_t u_tᵀ, which is
linear attention with u for v. With G_t = g_1 + … + g_t from the chunk's beginning and S what it began with,

    u_t + β_t Σ_{s<t} e^{G_t - G_s} (k_t · k_s) u_s = β_t v_t - β_t e^{G_t} Sᵀ k_t,

a unit lower triangular system (I + A) U = βV - (β e^G K) S. It is solved for both right-hand sides in all
chunks at once, U = U₀ - W S; only a few small products are left to do from chunk to chunk.

B batch, T time, H heads, K key width, V value width, N chunks, C and S time steps in a chunk.
"""

import torch
from torch import Tensor

from statewise.kernels.associative_memory import Inputs
from statewise.kernels.linear_attention.chunked import by_head, decay_between, within_rows
from statewise.kernels.time_axis import past_end

CHUNK = 32


def gated_delta(
    inputs: Inputs, s_BHKV: Tensor, lengths_B: Tensor | None, *, chunk: int = CHUNK
) -> tuple[Tensor, Tensor]:
    time, inputs = inputs[0].shape[1], within_rows(inputs, lengths_B)
    q_BHNCK, k_BHNCK, v_BHNCV, beta_BHNC, g_BHNC = (by_head(value, min(chunk, time)) for value in inputs)
    total_BHNC, between_BHNCS = decay_between(g_BHNC)
    end_BHN = total_BHNC[..., -1]

    a_BHNCS = (beta_BHNC[..., None] * between_BHNCS * (k_BHNCK @ k_BHNCK.mT)).tril(-1)
    right_BHNCX = torch.cat([v_BHNCV, total_BHNC.exp()[..., None] * k_BHNCK], dim=-1) * beta_BHNC[..., None]
    solved_BHNCX = torch.linalg.solve_triangular(a_BHNCS, right_BHNCX, upper=False, unitriangular=True)
    own_BHNCV, w_BHNCK = solved_BHNCX.split([v_BHNCV.shape[-1], k_BHNCK.shape[-1]], dim=-1)
    fading_BHNCK = k_BHNCK * between_BHNCS[..., -1, :, None]

    begins, written = [], []
    for n in range(end_BHN.shape[-1]):
        begins.append(s_BHKV)
        written.append(own_BHNCV[:, :, n] - w_BHNCK[:, :, n] @ s_BHKV)
        s_BHKV = end_BHN[:, :, n, None, None].exp() * s_BHKV + fading_BHNCK[:, :, n].mT @ written[-1]
    begin_BHNKV, u_BHNCV = torch.stack(begins, dim=2), torch.stack(written, dim=2)

    inside_BHNCV = (between_BHNCS * (q_BHNCK @ k_BHNCK.mT)) @ u_BHNCV
    before_BHNCV = total_BHNC.exp()[..., None] * (q_BHNCK @ begin_BHNKV)
    y_BTHV = (inside_BHNCV + before_BHNCV).movedim(1, 3).flatten(1, 2)[:, :time]
    return (y_BTHV if lengths_B is None else past_end(y_BTHV, lengths_B)), s_BHKV
