"""Counting what followed what: all contexts of a stream up to a length, in sorted arrays.

A context is a node of a tree that grows into the past: the root is "nothing known", its children are the last
symbol, theirs the last but one, and so on. A node's key is `parent * (V + 1) + symbol`. Nodes are numbered
level by level in the order of their keys, so all keys of all levels stand in one sorted array, a child is found
by one binary search, and no key outgrows 64 bits however long the context.

V vocabulary (V itself is the mark before a beginning), K order, N predictions, M distinct (context, next symbol)
of full length, C contexts, G pairs of a context and a symbol that followed it.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from statewise.specs import UserError

_LARGEST_KEY = 1 << 62
Ints = NDArray[np.int64]


class Counts(NamedTuple):
    """Followers of node c stand at `start[c]:start[c + 1]` of `symbol` and `count`, by symbol.

    At full length a count is how often the symbol followed. Below, it is the continuation count of Kneser and
    Ney: before how many different symbols (one further back) context and symbol were seen.
    """

    key_C: Ints  # the root's is -1
    start_C: Ints  # one more than there are nodes
    symbol_G: NDArray[np.int32]
    count_G: NDArray[np.int32]


def count(tokens: NDArray[np.integer], *, vocab: int, order: int, end_id: int | None = None) -> Counts:
    """Count a stream of documents, each of which begins with `end_id` (None: the stream is one document).

    The first token is read and not predicted. A context never reaches back beyond its document: what
    would stand there is the mark V.
    """
    if len(tokens) < 2 or len(tokens) > 1 << 31:
        raise UserError(f"{len(tokens):,} tokens cannot be counted, expected from 2 to {1 << 31:,}")
    if not np.issubdtype(tokens.dtype, np.integer):
        raise UserError(f"tokens have type {tokens.dtype}, expected whole numbers")
    for token in (tokens.min(), tokens.max()):
        if not 0 <= token < vocab:
            raise UserError(f"tokens hold {token}, expected numbers from 0 to {vocab - 1}")
    base = vocab + 1
    columns_KM, symbol_M, count_M = _distinct(tokens, base=base, order=order, end_id=end_id)
    keys, node_M = _contexts(columns_KM, base)
    sizes = np.cumsum([0, *map(len, keys)])

    # From the longest contexts down: the shorter ones count the distinct longer ones they are part of.
    level = (node_M, symbol_M, count_M)
    levels = [level]
    for k in range(order - 1, -1, -1):
        node, symbol, _ = level
        parent = keys[k + 1] // base - sizes[k]
        pair, continuations = np.unique(parent[node] * base + symbol, return_counts=True)
        level = (pair // base, pair % base, continuations)
        levels.append(level)
    levels.reverse()
    followers = [np.bincount(node, minlength=len(key)) for (node, _, _), key in zip(levels, keys)]
    return Counts(
        key_C=np.concatenate(keys),
        start_C=np.concatenate([[0], np.cumsum(np.concatenate(followers))]),
        symbol_G=np.concatenate([symbol for _, symbol, _ in levels]).astype(np.int32),
        count_G=np.concatenate([number for _, _, number in levels]).astype(np.int32),
    )


def _distinct(
    tokens: NDArray[np.integer], *, base: int, order: int, end_id: int | None
) -> tuple[list[Ints], Ints, Ints]:
    """The distinct grams of full length, sorted: their columns (the last symbol first), next symbols, counts."""
    predictions = len(tokens) - 1
    known_N = _known(tokens, order, end_id)
    key_N = np.zeros(predictions, dtype=np.int64)
    size = 1
    ranked: dict[int, Ints] = {}
    column_N = np.empty(predictions, dtype=np.int64)
    for k in range(order + 1):  # the symbol 1, 2, ..., K back, and last the next one
        if size > _LARGEST_KEY // base:  # the keys so far become their ranks, which keep their order
            ranked[k], key_N = np.unique(key_N, return_inverse=True)
            size = len(ranked[k])
        if k < order:
            column_N[:k] = base - 1
            column_N[k:] = tokens[: max(0, predictions - k)]
            column_N[known_N <= k] = base - 1
        else:
            column_N[:] = tokens[1:]
        key_N *= base
        key_N += column_N
        size *= base
    del column_N, known_N
    key_M, count_M = np.unique(key_N, return_counts=True)
    columns: list[Ints] = []
    for k in range(order, -1, -1):
        key_M, column_M = np.divmod(key_M, base)
        if k in ranked:
            key_M = ranked[k][key_M]
        columns.append(column_M)
    symbol_M, *backwards = columns
    return backwards[::-1], symbol_M, count_M


def _known(tokens: NDArray[np.integer], order: int, end_id: int | None) -> NDArray[np.uint8]:
    """For each prediction, how many symbols of its own document stand before it, K at most."""
    if end_id is None:
        return np.minimum(np.arange(1, len(tokens)), order).astype(np.uint8)
    at_N = np.arange(len(tokens) - 1, dtype=np.int64)
    begin_N = np.maximum.accumulate(np.where(tokens[:-1] == end_id, at_N, 0))
    return np.minimum(at_N - begin_N + 1, order).astype(np.uint8)


def _contexts(columns_KM: list[Ints], base: int) -> tuple[list[Ints], Ints]:
    """The keys of each level's nodes, and the node of each gram among those of the last level.

    The grams are sorted, so those of one context stand together, at every length.
    """
    keys = [np.array([-1], dtype=np.int64)]
    first_M = np.zeros(len(columns_KM[0]), dtype=bool)
    first_M[0] = True
    node_M = np.zeros(len(first_M), dtype=np.int64)
    nodes = 0  # on all levels above
    for column_M in columns_KM:
        parent_M = node_M + nodes
        nodes += len(keys[-1])
        first_M[1:] |= column_M[1:] != column_M[:-1]
        keys.append(parent_M[first_M] * base + column_M[first_M])
        node_M = np.cumsum(first_M) - 1
    return keys, node_M
