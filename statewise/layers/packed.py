"""Products with the same large matrices again and again, for a few rows each: matrices laid out for that, once.

A CPU that writes a text multiplies each weight with one vector a row and token. As `F.linear` finds them, weights lie
in memory row by row, which suits many rows of input. For one or two, a matrix that is wider than its input is
read much faster column by column; for more, in oneDNN's own blocks. The copies are kept as long as their weights:
speed for memory. `benchmarks/decode.py` measures what it gives.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.weak import WeakIdKeyDictionary

SMALLEST = 2**17  # numbers in a matrix; a smaller one stays in the cache, where its layout matters little
FEW, MANY = 2, 64  # rows up to which columns, and blocks, were measured to be faster
_SAMPLE = 1024
_BLOCK_ROWS = 16  # what oneDNN lays its blocks out for; measured to serve all numbers of rows from 3 to 64

Product = Callable[[Tensor, Tensor | None], Tensor]


class _Kept:
    """A weight's other layouts, as long as it is what it was when they were made."""

    def __init__(self, weight_OI: Tensor) -> None:
        self.mark = _mark(weight_OI)
        self.products: dict[str, Product] = {}

    def is_of(self, weight_OI: Tensor) -> bool:
        version, address, sample = _mark(weight_OI)
        return self.mark[:2] == (version, address) and torch.equal(self.mark[2], sample)


def _mark(weight_OI: Tensor) -> tuple[int, int, Tensor]:
    """A write through `.data` counts no version, so some entries are looked at too."""
    flat = weight_OI.detach().flatten()
    return weight_OI._version, weight_OI.data_ptr(), flat[:: max(1, flat.numel() // _SAMPLE)].clone()


_kept = WeakIdKeyDictionary()  # by parameter; gone with it


def _by_columns(weight_OI: Tensor) -> Product:
    weight_IO = weight_OI.detach().mT.contiguous()

    def product(x: Tensor, bias_O: Tensor | None) -> Tensor:
        return x @ weight_IO if bias_O is None else torch.addmm(bias_O, x, weight_IO)

    return product


def _in_blocks(weight_OI: Tensor) -> Product:
    packed = torch.ops.mkldnn._reorder_linear_weight(weight_OI.detach().contiguous(), _BLOCK_ROWS)

    def product(x: Tensor, bias_O: Tensor | None) -> Tensor:
        y: Tensor = torch.ops.mkldnn._linear_pointwise(x, packed, bias_O, "none", [], "")
        return y

    return product


def layout(weight_OI: Tensor, rows: int) -> str | None:
    """The one that is fastest for so many rows, or None: as it is."""
    if weight_OI.dim() != 2 or weight_OI.numel() < SMALLEST or weight_OI.dtype != torch.float32:
        return None
    if weight_OI.device.type != "cpu":
        return None
    if rows <= FEW:
        return "columns" if weight_OI.shape[0] >= weight_OI.shape[1] else None
    blocked = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    return "blocks" if rows <= MANY and blocked else None


def prepared(weight_OI: Tensor, rows: int) -> Product | None:
    """Its product in that layout, made now or kept from an earlier time."""
    name = layout(weight_OI, rows)
    if name is None:
        return None
    kept: _Kept | None = _kept[weight_OI] if weight_OI in _kept else None  # noqa: SIM401 (its `get` is untyped)
    if kept is None or not kept.is_of(weight_OI):
        kept = _kept[weight_OI] = _Kept(weight_OI)
    if name not in kept.products:
        kept.products[name] = _by_columns(weight_OI) if name == "columns" else _in_blocks(weight_OI)
    return kept.products[name]


_rows: ContextVar[int | None] = ContextVar("packed_rows", default=None)
_ready: ContextVar[dict[int, Product | None]] = ContextVar("packed_products")


@contextmanager
def packed_products(rows: int, ready: dict[int, Product | None]) -> Iterator[None]:
    """Inside, `linear` of `rows` vectors by a parameter takes the layout that suits them.

    Without gradients. `ready` is the caller's: what was found once is not asked for again while it is the same one,
    so nobody may write to the parameters meanwhile.
    """
    tokens = _rows.set(rows), _ready.set(ready)
    try:
        yield
    finally:
        _rows.reset(tokens[0])
        _ready.reset(tokens[1])


def linear(x: Tensor, weight_OI: Tensor, bias_O: Tensor | None = None) -> Tensor:
    """`F.linear`, for matrices that a step of writing multiplies with."""
    rows = _rows.get()
    if rows is None or x.numel() != rows * weight_OI.shape[1] or x.dtype != weight_OI.dtype:
        return F.linear(x, weight_OI, bias_O)
    ready = _ready.get()
    if id(weight_OI) not in ready:
        ready[id(weight_OI)] = prepared(weight_OI, rows)
    product = ready[id(weight_OI)]
    if product is None:
        return F.linear(x, weight_OI, bias_O)
    return product(x.reshape(rows, -1), bias_O).view(*x.shape[:-1], len(weight_OI))
