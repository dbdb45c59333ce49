"""Linear attention, one time step at a time: a sum of outer products is written to and read from.

    S_t = e^{g_t} · S_{t-1} + k_t v_tᵀ        y_t = S_tᵀ q_t

g (the logarithm of a decay, at most 0) is 0 in linear attention itself; a selective state space has one.

B batch, T time, H heads, K key width, V value width.
"""

import torch
from torch import Tensor

from statewise.core import observe, unroll_many
from statewise.kernels.associative_memory import Inputs, outer, read


def linear_attention_step(
    q_BHK: Tensor, k_BHK: Tensor, v_BHV: Tensor, g_BH: Tensor, s_BHKV: Tensor
) -> tuple[Tensor, Tensor]:
    """One time step."""
    q_BHK = observe("linear_attention.query", q_BHK)
    k_BHK = observe("linear_attention.key", k_BHK)
    v_BHV = observe("linear_attention.value", v_BHV)
    decay_BH = observe("linear_attention.decay", torch.exp(g_BH))
    s_BHKV = decay_BH[:, :, None, None] * s_BHKV + outer(k_BHK, v_BHV)
    s_BHKV = observe("linear_attention.state", s_BHKV)
    return read(q_BHK, s_BHKV), s_BHKV


def linear_attention(inputs: Inputs, s_BHKV: Tensor, lengths_B: Tensor | None) -> tuple[Tensor, Tensor]:
    """Inputs: q_BTHK, k_BTHK, v_BTHV, g_BTH."""
    return unroll_many(linear_attention_step, inputs, s_BHKV, lengths_B)
