"""Products with the same large matrices again and again, a few rows each, on a CPU: matrices packed for that, once.

Decoding on a CPU multiplies each weight with one vector per row and token. `F.linear` finds weights in memory row by
row, which suits many rows of input. For one or two, a matrix that is wider than its input is read much faster column by
column; for more, in oneDNN's own blocks, where what follows the product costs next to nothing. The copies are kept as
long as their weights: speed for three times the memory. With a single vector, MKL leaves all but one core idle; a large
matrix is cut into one part per thread and multiplied as a batch of products. `benchmarks/decode.py` measures the gain.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, NamedTuple, assert_never

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.weak import WeakIdKeyDictionary

from statewise.core import Switch

SMALLEST = 2**17  # numbers in a matrix; a smaller one stays in the cache, where its layout matters little
FEW, MANY = 2, 64  # rows up to which columns, and blocks, were measured to be faster
LARGE = 2**18  # numbers from which each thread reads a part; twice as many where it reads rows
_MOST_PARTS = 8  # more would be too small to be worth a thread
_BLOCK_ROWS = 16  # what oneDNN lays its blocks out for; measured to serve all numbers of rows from 3 to 64

Activation = Literal["none", "relu", "gelu"]
# Of input, bias, activation, and what to add the result to.
Product = Callable[[Tensor, Tensor | None, Activation, Tensor | None], Tensor]
_Bare = Callable[[Tensor, Tensor | None], Tensor]  # input, bias
Layout = Literal["columns", "rows", "blocks"]


class _Kept:
    """A weight's other layouts, valid while the weight has the values they were made from.

    That is checked by comparing it with a copy, once for each text: a write through `.data` leaves no other trace. The
    check takes as long as a token or two.
    """

    def __init__(self, weight_OI: Tensor) -> None:
        self.copy_OI = weight_OI.detach().clone()
        self.products: dict[tuple[Layout, int], Product] = {}

    def is_of(self, weight_OI: Tensor) -> bool:
        return torch.equal(self.copy_OI, weight_OI)


_kept = WeakIdKeyDictionary()  # by parameter; gone with it


def _by_columns(weight_OI: Tensor, parts: int) -> _Bare:
    if parts > 1:
        return _in_parts(
            F.pad(weight_OI.detach(), (0, 0, 0, -len(weight_OI) % parts)), len(weight_OI), parts, turn=True
        )
    weight_IO = weight_OI.detach().mT.contiguous()

    def product(x: Tensor, bias_O: Tensor | None) -> Tensor:
        return x @ weight_IO if bias_O is None else torch.addmm(bias_O, x, weight_IO)

    return product


def _in_parts(padded_OI: Tensor, width: int, parts: int, *, turn: bool) -> _Bare:
    """For one vector. Of rows no copy is made."""
    weight_PIO = padded_OI.reshape(parts, -1, padded_OI.shape[1]).mT
    if turn:
        weight_PIO = weight_PIO.contiguous()

    def product(x_1I: Tensor, bias_O: Tensor | None) -> Tensor:
        x_P1I = x_1I.expand(parts, 1, -1)
        if bias_O is not None and len(padded_OI) == width:
            return torch.baddbmm(bias_O.view(parts, 1, -1), x_P1I, weight_PIO).view(1, -1)
        y_1O = torch.bmm(x_P1I, weight_PIO).view(1, -1)[:, :width]
        return y_1O if bias_O is None else y_1O + bias_O

    return product


def _in_blocks(weight_OI: Tensor) -> Product:
    packed = torch.ops.mkldnn._reorder_linear_weight(weight_OI.detach().contiguous(), _BLOCK_ROWS)

    def product(x: Tensor, bias_O: Tensor | None, activation: Activation, onto: Tensor | None) -> Tensor:
        y: Tensor
        if onto is not None and activation == "none":
            y = torch.ops.mkldnn._linear_pointwise.binary(x, onto, packed, bias_O, "add")
            return y
        variant = "tanh" if activation == "gelu" else ""
        y = torch.ops.mkldnn._linear_pointwise(x, packed, bias_O, activation, [], variant)
        return y if onto is None else onto + y

    return product


def layout(weight_OI: Tensor, rows: int) -> Layout | None:
    """The fastest one for so many rows; None: the weight as it is."""
    if weight_OI.dim() != 2 or weight_OI.numel() < SMALLEST or weight_OI.dtype != torch.float32:
        return None
    if weight_OI.device.type != "cpu":
        return None
    if rows <= FEW:
        width, input_width = weight_OI.shape
        parts = parts_of(weight_OI, rows)
        in_parts = parts > 1 and width % parts == 0 and weight_OI.numel() >= 2 * LARGE
        if width > input_width or (width == input_width and not in_parts):
            return "columns"
        return "rows" if in_parts else None
    blocked = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    return "blocks" if rows <= MANY and blocked else None


def parts_of(weight_OI: Tensor, rows: int) -> int:
    """How many parts are multiplied at the same time."""
    return min(_MOST_PARTS, torch.get_num_threads()) if rows == 1 and weight_OI.numel() >= LARGE else 1


def prepare_cpu(weight_OI: Tensor, rows: int) -> Product | None:
    """The product with this matrix for so many rows, on a CPU; None: use PyTorch's own. Made once, then cached."""
    kind, parts = layout(weight_OI, rows), parts_of(weight_OI, rows)
    if kind is None:
        return None
    if kind == "rows":  # needs no copy
        return _made(weight_OI, kind, parts)
    kept: _Kept | None = _kept[weight_OI] if weight_OI in _kept else None  # noqa: SIM401 (its `get` is untyped)
    if kept is None or not kept.is_of(weight_OI):
        kept = _kept[weight_OI] = _Kept(weight_OI)
    if (kind, parts) not in kept.products:
        kept.products[kind, parts] = _made(weight_OI, kind, parts)
    return kept.products[kind, parts]


def _made(weight_OI: Tensor, kind: Layout, parts: int) -> Product:
    match kind:
        case "columns":
            return _finished(_by_columns(weight_OI, parts))
        case "rows":
            return _finished(_in_parts(weight_OI.detach(), len(weight_OI), parts, turn=False))
        case "blocks":
            return _in_blocks(weight_OI)
        case _:
            assert_never(kind)


def _finished(product: _Bare) -> Product:
    return lambda x, bias_O, activation, onto: _finish(product(x, bias_O), activation, onto)


class _Open(NamedTuple):
    rows: int
    ready: dict[int, Product | None]
    prepare: Callable[[Tensor, int], Product | None]


_open: Switch[_Open | None] = Switch("packed_products", None)


@contextmanager
def packed_products(
    rows: int, ready: dict[int, Product | None], prepare: Callable[[Tensor, int], Product | None] = prepare_cpu
) -> Iterator[None]:
    """Inside, `linear` of `rows` vectors by a parameter uses the product that `prepare` gives. Without gradients.

    `ready` is the caller's cache: a matrix is prepared once for it, so parameters must not change meanwhile.
    """
    with _open.set(_Open(rows, ready, prepare)):
        yield


def linear(
    x: Tensor,
    weight_OI: Tensor,
    bias_O: Tensor | None = None,
    *,
    activation: Activation = "none",
    onto: Tensor | None = None,
) -> Tensor:
    """`onto + activation(W x + b)`, for the matrices of a decoding step. `gelu` is GPT-2's (tanh)."""
    opened = _open.get()
    if opened is None or x.numel() != opened.rows * weight_OI.shape[1] or x.dtype != weight_OI.dtype:
        return _finish(F.linear(x, weight_OI, bias_O), activation, onto)
    rows, ready, prepare = opened
    if id(weight_OI) not in ready:
        ready[id(weight_OI)] = prepare(weight_OI, rows)
    product = ready[id(weight_OI)]
    if product is None:
        return _finish(F.linear(x, weight_OI, bias_O), activation, onto)
    under = None if onto is None else onto.reshape(rows, -1)
    return product(x.reshape(rows, -1), bias_O, activation, under).view(*x.shape[:-1], len(weight_OI))


def _finish(y: Tensor, activation: Activation, onto: Tensor | None) -> Tensor:
    match activation:
        case "none":
            pass
        case "relu":
            y = F.relu(y)
        case "gelu":
            y = F.gelu(y, approximate="tanh")
        case _:
            assert_never(activation)
    return y if onto is None else onto + y
