"""Counts as tensors, with what every prediction needs of them; and the discounts that go with them.

V vocabulary, K order, C contexts, G pairs of a context and a symbol that followed it.
"""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from statewise.specs import UserError

_DTYPES = {"key_C": torch.int64, "start_C": torch.int64, "symbol_G": torch.int32, "count_G": torch.int32}


class Tables(NamedTuple):
    """`key`, `start`, `symbol` and `count` as in `counting.Counts`; the rest follows from them."""

    key_C: Tensor
    start_C: Tensor
    symbol_G: Tensor
    count_G: Tensor
    total_C: Tensor  # sum of a context's counts
    kinds_C3: Tensor  # how many of its followers have count 1, 2, and more


Discounts = tuple[tuple[float, float, float], ...]  # per length of context: of count 1, of 2, of more


def empty() -> dict[str, Tensor]:
    """Before anything was counted: the root, and nothing that followed."""
    sizes = {"key_C": [-1], "start_C": [0, 0], "symbol_G": [], "count_G": []}
    return {name: torch.tensor(values, dtype=_DTYPES[name]) for name, values in sizes.items()}


def node_of(start_C: Tensor, symbol_G: Tensor) -> Tensor:
    """Whom each pair belongs to; found so that its size is known before any number is."""
    return torch.searchsorted(start_C, torch.arange(symbol_G.shape[0], device=start_C.device), right=True) - 1


def complete(parts: Mapping[str, Tensor]) -> Tables:
    key_C, start_C, symbol_G, count_G = (parts[name] for name in _DTYPES)
    node_G = node_of(start_C, symbol_G)
    total_C = torch.zeros_like(key_C).index_add_(0, node_G, count_G.long())
    kinds_C3 = key_C.new_zeros(len(key_C), 3)
    kinds_C3.view(-1).index_add_(0, 3 * node_G + count_G.clamp(max=3) - 1, torch.ones_like(node_G))
    return Tables(key_C, start_C, symbol_G, count_G, total_C, kinds_C3)


def levels(key_C: Tensor, *, vocab: int) -> list[int]:
    """Where the contexts of each length begin, and the end: `[0, 1, 1 + contexts of one symbol, ...]`."""
    borders = [0, 1]
    while borders[-1] < len(key_C):
        # All whose parent stands before this border.
        border = int(torch.searchsorted(key_C, borders[-1] * (vocab + 1)))
        if border <= borders[-1]:
            raise UserError("the counts are damaged: a context has no place in the tree")
        borders.append(border)
    return borders


def check(parts: Mapping[str, Tensor], *, vocab: int, order: int) -> None:
    """Refuse arrays that did not come from counting with this vocabulary and order."""
    if set(parts) != set(_DTYPES) or any(
        parts[name].dtype != dtype or parts[name].dim() != 1 for name, dtype in _DTYPES.items()
    ):
        raise UserError(f"the counts are not the arrays {', '.join(_DTYPES)}")
    key_C, start_C, symbol_G, count_G = (parts[name] for name in _DTYPES)
    sound = (
        len(key_C) >= 1
        and int(key_C[0]) == -1
        and bool((key_C.diff() > 0).all())
        and len(start_C) == len(key_C) + 1
        and int(start_C[0]) == 0
        and int(start_C[-1]) == len(symbol_G) == len(count_G)
        and bool((start_C.diff() >= 0).all())
        and bool(((symbol_G >= 0) & (symbol_G < vocab)).all())
        and bool((count_G >= 1).all())
    )
    if not sound or len(levels(key_C, vocab=vocab)) > order + 2:
        raise UserError(f"the counts do not fit a vocabulary of {vocab} and an order of {order}")


def one_discount(discount: float, *, order: int) -> Discounts:
    """The same for all counts and lengths, as Kneser and Ney have it."""
    return ((discount,) * 3,) * (order + 1)


def estimated(tables: Tables, *, vocab: int, order: int, otherwise: float) -> Discounts:
    """Three a length, from how many counts are 1, 2, 3 and 4 there: Chen and Goodman's modified Kneser-Ney.

    `D_i = i - (i + 1) · Y · n_{i+1} / n_i` with `Y = n_1 / (n_1 + 2 n_2)`. Where a text is too small to tell,
    `otherwise` is taken.
    """
    borders = levels(tables.key_C, vocab=vocab)
    found = []
    for k in range(order + 1):
        if k + 1 >= len(borders):
            found.append((otherwise,) * 3)
            continue
        begin, end = (int(tables.start_C[border]) for border in borders[k : k + 2])
        n = torch.bincount(tables.count_G[begin:end].clamp(max=5), minlength=6).tolist()
        if 0 in n[1:4]:
            found.append((otherwise,) * 3)
            continue
        y = n[1] / (n[1] + 2 * n[2])
        d1, d2, d3 = (i - (i + 1) * y * n[i + 1] / n[i] for i in (1, 2, 3))
        # Something must be left for what was not seen, and no more can be taken than there is.
        found.append((min(max(d1, 0.05), 1.0), min(max(d2, 0.05), 2.0), min(max(d3, 0.05), 3.0)))
    return tuple(found)
