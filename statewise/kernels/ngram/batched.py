"""Kneser-Ney and add-k for many contexts at once.

Written as a sum, `p = Σ_k (Π_{i>k} λ_i) α_k + (Π_i λ_i) / V`, each length adds what it knows to the few symbols it
has seen; only the empty context touches the whole vocabulary.

N contexts, K order, V vocabulary, C nodes, G pairs of a node and a symbol that followed it.
"""

import torch
from torch import Tensor

from statewise.core import is_known
from statewise.kernels.ngram.tables import Discounts, Tables


def walk(context_NK: Tensor, tables: Tables, *, vocab: int) -> list[tuple[Tensor, Tensor]]:
    """For each length from 0 to K: the node, and whether that context was ever seen."""
    node_N = torch.zeros(context_NK.shape[0], dtype=torch.int64, device=context_NK.device)
    seen_N = tables.total_C[node_N] > 0
    path = [(node_N, seen_N)]
    for symbol_N in context_NK.flip(1).unbind(1):
        key_N = node_N * (vocab + 1) + symbol_N
        at_N = torch.searchsorted(tables.key_C, key_N).clamp(max=tables.key_C.shape[0] - 1)
        seen_N = seen_N & (tables.key_C[at_N] == key_N)
        node_N = torch.where(seen_N, at_N, 0)
        path.append((node_N, seen_N))
    return path


def _add_followers(
    p_NV: Tensor, node_N: Tensor, share_N: Tensor, tables: Tables, discounts: tuple[float, float, float]
) -> Tensor:
    """`p[n, w] + share[n] · (c - D(c))` for every w that followed the node of n; rows without a share take no part."""
    if not is_known(p_NV):
        return p_NV + share_N[:, None] * _followers(node_N, tables, discounts, like_NV=p_NV)
    row_R = share_N.nonzero()[:, 0]
    begin_R = tables.start_C[node_N[row_R]]
    number_R = tables.start_C[node_N[row_R] + 1] - begin_R
    row_G = torch.repeat_interleave(number_R)
    at_G = torch.arange(len(row_G), device=p_NV.device) - (number_R.cumsum(0) - number_R - begin_R)[row_G]
    row_G = row_R[row_G]
    count_G = tables.count_G[at_G]
    taken_4 = torch.tensor([0.0, *discounts], dtype=p_NV.dtype, device=p_NV.device)
    gain_G = share_N[row_G] * (count_G - taken_4[count_G.clamp(max=3)])
    p_NV.view(-1).index_add_(0, row_G * p_NV.shape[1] + tables.symbol_G[at_G], gain_G)  # nobody else has it
    return p_NV


def _followers(node_N: Tensor, tables: Tables, discounts: tuple[float, float, float], *, like_NV: Tensor) -> Tensor:
    """`c - D(c)` of every symbol after the node of n, 0 where it never followed.

    For whoever traces: how many symbols followed a node is no size that a graph could have, so all of V are looked up.
    """
    vocab = like_NV.shape[1]
    at_NV = tables.start_C[node_N][:, None] + torch.arange(vocab, device=node_N.device)
    its_own_NV = at_NV < tables.start_C[node_N + 1][:, None]
    at_NV = at_NV.clamp(max=tables.symbol_G.shape[0] - 1)
    symbol_NV, count_NV = tables.symbol_G[at_NV].long(), tables.count_G[at_NV].long() * its_own_NV
    taken_4 = torch.tensor([0.0, *discounts], dtype=like_NV.dtype, device=like_NV.device)
    return torch.zeros_like(like_NV).scatter_add(1, symbol_NV, count_NV - taken_4[count_NV.clamp(max=3)])


def kneser_ney(context_NK: Tensor, tables: Tables, discounts: Discounts, *, vocab: int, dtype: torch.dtype) -> Tensor:
    """Distributions `[N, V]`."""
    path = walk(context_NK, tables, vocab=vocab)
    left_N = torch.ones(context_NK.shape[0], dtype=dtype, device=context_NK.device)  # what longer contexts leave over
    shares = []
    for (node_N, seen_N), discount in zip(reversed(path), reversed(discounts), strict=True):
        total_N = tables.total_C[node_N].to(dtype).clamp(min=1)
        taken_3 = torch.tensor(discount, dtype=dtype, device=context_NK.device)
        passed_N = (tables.kinds_C3[node_N].to(dtype) @ taken_3) / total_N
        shares.append(left_N / total_N * seen_N)
        left_N = torch.where(seen_N, left_N * passed_N, left_N)
    shares.reverse()

    root_1V = torch.zeros(1, vocab, dtype=dtype, device=context_NK.device)
    root_1V = _add_followers(root_1V, path[0][0][:1], torch.ones_like(left_N[:1]), tables, discounts[0])
    p_NV = shares[0][:, None] * root_1V + (left_N / vocab)[:, None]
    for (node_N, _), share_N, discount in zip(path[1:], shares[1:], discounts[1:], strict=True):
        p_NV = _add_followers(p_NV, node_N, share_N, tables, discount)
    return p_NV


def add_k(context_NK: Tensor, tables: Tables, k: float, *, vocab: int, dtype: torch.dtype) -> Tensor:
    """Distributions `[N, V]`."""
    node_N, seen_N = walk(context_NK, tables, vocab=vocab)[-1]
    share_N = 1 / (tables.total_C[node_N].to(dtype) * seen_N + k * vocab)
    p_NV = (k * share_N)[:, None].repeat(1, vocab)
    return _add_followers(p_NV, node_N, share_N * seen_N, tables, (0.0, 0.0, 0.0))
