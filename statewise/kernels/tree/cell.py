"""What a parent is made of, written out. x stands at the node (0 where nothing does), k counts its children.

Plain composition:            h = tanh(W x + Σ_k U_k h_k + b), which for two children is tanh(U [l; r] + b)

Child-sum Tree-LSTM:          s = Σ_k h_k
                              i, o = σ(W x + U s + b)     g = tanh(W x + U s + b)
                              f_k  = σ(W_f x + U_f h_k + b_f)
N-ary Tree-LSTM:              i, o, g as above with Σ_l U_l h_l in place of U s
                              f_k  = σ(W_f x + Σ_l U_kl h_l + b_f)
Both:                         c = i · g + Σ_k f_k · c_k             h = o · tanh c

Gate rows stand in the order i, f, g, o, as in the LSTM: with one child each is that LSTM's step.

N nodes, K children, I input width, D width.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from statewise.core import observe


class PlainWeights(NamedTuple):
    w_DI: Tensor
    u_DKD: Tensor
    b_D: Tensor


class ChildSumWeights(NamedTuple):
    w_GI: Tensor
    u_GD: Tensor
    b_G: Tensor


class NaryWeights(NamedTuple):
    w_GI: Tensor
    u_RKD: Tensor  # rows i, f_1 ... f_K, g, o
    b_G: Tensor


def plain(x_NI: Tensor, h_NKD: Tensor, weights: PlainWeights) -> Tensor:
    below_ND = F.linear(h_NKD.flatten(1), weights.u_DKD.flatten(1))
    return observe("tree.h", torch.tanh(F.linear(x_NI, weights.w_DI, weights.b_D) + below_ND))


def child_sum(x_NI: Tensor, h_NKD: Tensor, c_NKD: Tensor, weights: ChildSumWeights) -> tuple[Tensor, Tensor]:
    a_i, a_f, a_g, a_o = F.linear(x_NI, weights.w_GI, weights.b_G).chunk(4, dim=-1)
    u_i, u_f, u_g, u_o = weights.u_GD.chunk(4)
    s_ND = h_NKD.sum(1)
    f_NKD = torch.sigmoid(a_f[:, None] + h_NKD @ u_f.mT)
    return _gated(a_i + s_ND @ u_i.mT, f_NKD, a_g + s_ND @ u_g.mT, a_o + s_ND @ u_o.mT, c_NKD)


def nary(x_NI: Tensor, h_NKD: Tensor, c_NKD: Tensor, weights: NaryWeights) -> tuple[Tensor, Tensor]:
    a_i, a_f, a_g, a_o = F.linear(x_NI, weights.w_GI, weights.b_G).chunk(4, dim=-1)
    nodes, children, width = h_NKD.shape
    below_NR = F.linear(h_NKD.flatten(1), weights.u_RKD.flatten(1))
    ends = [width, (1 + children) * width, (2 + children) * width]
    r_i, r_f, r_g, r_o = below_NR.tensor_split(ends, dim=-1)
    f_NKD = torch.sigmoid(a_f[:, None] + r_f.view(nodes, children, width))
    return _gated(a_i + r_i, f_NKD, a_g + r_g, a_o + r_o, c_NKD)


def _gated(i_ND: Tensor, f_NKD: Tensor, g_ND: Tensor, o_ND: Tensor, c_NKD: Tensor) -> tuple[Tensor, Tensor]:
    """An absent child has c = 0, so that its gate says nothing."""
    i_ND = observe("tree.input_gate", torch.sigmoid(i_ND))
    f_NKD = observe("tree.forget_gate", f_NKD)
    c_ND = observe("tree.cell", i_ND * torch.tanh(g_ND) + (f_NKD * c_NKD).sum(1))
    o_ND = observe("tree.output_gate", torch.sigmoid(o_ND))
    return observe("tree.h", o_ND * torch.tanh(c_ND)), c_ND
