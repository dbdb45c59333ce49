"""Kneser-Ney and add-k, written out for one context at a time.

    p_k(w | h) = (c(h w) - D(c(h w))) / c(h •)  +  λ(h) · p_{k-1}(w | h without its oldest symbol)
    λ(h)       = (D_1 N_1(h) + D_2 N_2(h) + D_3 N_3(h)) / c(h •)

c are counts for the longest contexts and continuation counts for all shorter ones; N_i(h) is how many symbols
followed h with count i (3: or more). Below the empty context stands the uniform distribution. A context that
was never seen says nothing: the shorter one speaks in its place.

V vocabulary.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from statewise.kernels.ngram.tables import Discounts, Tables


def find(context: Sequence[int], tables: Tables, *, vocab: int) -> int | None:
    """The node of a context (oldest symbol first), or None if it was never seen."""
    node = 0
    for symbol in reversed(context):
        key = node * (vocab + 1) + symbol
        node = int(torch.searchsorted(tables.key_C, key))
        if node == len(tables.key_C) or int(tables.key_C[node]) != key:
            return None
    return node if int(tables.total_C[node]) > 0 else None


def followers(node: int, tables: Tables, *, vocab: int) -> Tensor:
    """Counts of all symbols after a context, `[V]`."""
    some = slice(int(tables.start_C[node]), int(tables.start_C[node + 1]))
    count_V = torch.zeros(vocab, dtype=torch.float64, device=tables.key_C.device)
    count_V[tables.symbol_G[some].long()] = tables.count_G[some].double()
    return count_V


def kneser_ney(context: Sequence[int], tables: Tables, discounts: Discounts, *, vocab: int) -> Tensor:
    """The distribution over the next symbol, `[V]`."""
    if context:
        lower_V = kneser_ney(context[1:], tables, discounts, vocab=vocab)
    else:
        lower_V = torch.full((vocab,), 1 / vocab, dtype=torch.float64, device=tables.key_C.device)
    node = find(context, tables, vocab=vocab)
    if node is None:
        return lower_V
    count_V = followers(node, tables, vocab=vocab)
    discount_4 = torch.tensor([0.0, *discounts[len(context)]], dtype=torch.float64, device=count_V.device)
    taken_V = discount_4[count_V.long().clamp(max=3)]
    return (count_V - taken_V + taken_V.sum() * lower_V) / count_V.sum()


def add_k(context: Sequence[int], tables: Tables, k: float, *, vocab: int) -> Tensor:
    """`(c(h w) + k) / (c(h •) + k V)`, `[V]`."""
    node = find(context, tables, vocab=vocab)
    count_V = torch.zeros(vocab, dtype=torch.float64, device=tables.key_C.device)
    if node is not None:
        count_V = followers(node, tables, vocab=vocab)
    return (count_V + k) / (count_V.sum() + k * vocab)
