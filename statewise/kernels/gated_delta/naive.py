"""The gated delta rule, one time step at a time: forget a little, then correct what a key stands for.

    S̃   = e^{g_t} · S_{t-1}                       everything fades
    S_t = S̃ + β_t k_t (v_t - S̃ᵀ k_t)ᵀ            what k reads is moved towards v, by a share β
    y_t = S_tᵀ q_t

The same as S_t = e^{g} (I - β k kᵀ) S_{t-1} + β k vᵀ. With keys of length 1 and β = 1 the old value of k is
replaced. g = 0 throughout is the delta rule alone.

B batch, T time, H heads, K key width, V value width.
"""

import torch
from torch import Tensor

from statewise.core import observe, unroll_many
from statewise.kernels.associative_memory import Inputs, outer, read


def gated_delta_step(
    q_BHK: Tensor, k_BHK: Tensor, v_BHV: Tensor, beta_BH: Tensor, g_BH: Tensor, s_BHKV: Tensor
) -> tuple[Tensor, Tensor]:
    """One time step."""
    q_BHK = observe("gated_delta.query", q_BHK)
    k_BHK = observe("gated_delta.key", k_BHK)
    decay_BH = observe("gated_delta.decay", torch.exp(g_BH))
    beta_BH = observe("gated_delta.beta", beta_BH)
    s_BHKV = decay_BH[..., None, None] * s_BHKV
    error_BHV = observe("gated_delta.error", v_BHV - read(k_BHK, s_BHKV))
    s_BHKV = s_BHKV + outer(beta_BH[..., None] * k_BHK, error_BHV)
    s_BHKV = observe("gated_delta.state", s_BHKV)
    return read(q_BHK, s_BHKV), s_BHKV


def gated_delta(inputs: Inputs, s_BHKV: Tensor, lengths_B: Tensor | None) -> tuple[Tensor, Tensor]:
    """Inputs: q_BTHK, k_BTHK, v_BTHV, beta_BTH, g_BTH."""
    return unroll_many(gated_delta_step, inputs, s_BHKV, lengths_B)
