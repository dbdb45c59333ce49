"""Products with the same large matrices again and again, for a few rows each: matrices laid out for that, once.

A CPU that writes a text multiplies each weight with one vector a row and token. As `F.linear` finds them, weights lie
in memory row by row, which suits many rows of input. For one or two, a matrix that is wider than its input is
read much faster column by column; for more, in oneDNN's own blocks, where what comes after the product costs next to
nothing. The copies are kept as long as their weights: speed for three times the memory. With a single vector, MKL
leaves all but one core idle; a large matrix is cut into as many parts as there are threads, a batch of products, which
it shares out. `benchmarks/decode.py` measures what it gives.
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

Bend = Literal["none", "relu", "gelu"]
Product = Callable[[Tensor, Tensor | None], Tensor]
Finished = Callable[[Tensor, Tensor | None, Bend, Tensor | None], Tensor]  # input, bias, bend, what to add to
Layout = Literal["columns", "rows", "blocks"]


class _Kept:
    """A weight's other layouts, as long as it is what it was when they were made.

    Whether it is, is seen by comparing all of it with a copy, once for each text: a write through `.data` leaves no
    other trace. That takes as long as a token or two.
    """

    def __init__(self, weight_OI: Tensor) -> None:
        self.copy_OI = weight_OI.detach().clone()
        self.products: dict[tuple[Layout, int], Finished] = {}

    def is_of(self, weight_OI: Tensor) -> bool:
        return torch.equal(self.copy_OI, weight_OI)


_kept = WeakIdKeyDictionary()  # by parameter; gone with it


def _by_columns(weight_OI: Tensor, parts: int) -> Product:
    if parts > 1:
        return _in_parts(
            F.pad(weight_OI.detach(), (0, 0, 0, -len(weight_OI) % parts)), len(weight_OI), parts, turn=True
        )
    weight_IO = weight_OI.detach().mT.contiguous()

    def product(x: Tensor, bias_O: Tensor | None) -> Tensor:
        return x @ weight_IO if bias_O is None else torch.addmm(bias_O, x, weight_IO)

    return product


def _in_parts(padded_OI: Tensor, width: int, parts: int, *, turn: bool) -> Product:
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


def _in_blocks(weight_OI: Tensor) -> Finished:
    packed = torch.ops.mkldnn._reorder_linear_weight(weight_OI.detach().contiguous(), _BLOCK_ROWS)

    def product(x: Tensor, bias_O: Tensor | None, bend: Bend, onto: Tensor | None) -> Tensor:
        y: Tensor
        if onto is not None and bend == "none":
            y = torch.ops.mkldnn._linear_pointwise.binary(x, onto, packed, bias_O, "add")
            return y
        y = torch.ops.mkldnn._linear_pointwise(x, packed, bias_O, bend, [], "tanh" if bend == "gelu" else "")
        return y if onto is None else onto + y

    return product


def layout(weight_OI: Tensor, rows: int) -> Layout | None:
    """The one that is fastest for so many rows, or None: as it is."""
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
    """That are multiplied at the same time."""
    return min(_MOST_PARTS, torch.get_num_threads()) if rows == 1 and weight_OI.numel() >= LARGE else 1


def prepared(weight_OI: Tensor, rows: int) -> Finished | None:
    """Its product and what comes right after, on a CPU, in the layout for so many rows; None: as PyTorch has it.

    Made now, or kept from an earlier time.
    """
    name, parts = layout(weight_OI, rows), parts_of(weight_OI, rows)
    if name is None:
        return None
    if name == "rows":  # of which no copy is made
        return _made(weight_OI, name, parts)
    kept: _Kept | None = _kept[weight_OI] if weight_OI in _kept else None  # noqa: SIM401 (its `get` is untyped)
    if kept is None or not kept.is_of(weight_OI):
        kept = _kept[weight_OI] = _Kept(weight_OI)
    if (name, parts) not in kept.products:
        kept.products[name, parts] = _made(weight_OI, name, parts)
    return kept.products[name, parts]


def _made(weight_OI: Tensor, name: Layout, parts: int) -> Finished:
    match name:
        case "columns":
            return _finished(_by_columns(weight_OI, parts))
        case "rows":
            return _finished(_in_parts(weight_OI.detach(), len(weight_OI), parts, turn=False))
        case "blocks":
            return _in_blocks(weight_OI)
        case _:
            assert_never(name)


def _finished(product: Product) -> Finished:
    return lambda x, bias_O, bend, onto: _finish(product(x, bias_O), bend, onto)


class _Open(NamedTuple):
    rows: int
    ready: dict[int, Finished | None]
    prepare: Callable[[Tensor, int], Finished | None]


_open: Switch[_Open | None] = Switch("packed_products", None)


@contextmanager
def packed_products(
    rows: int,
    ready: dict[int, Finished | None],
    prepare: Callable[[Tensor, int], Finished | None] = prepared,
) -> Iterator[None]:
    """Inside, `linear` of `rows` vectors by a parameter takes the form that suits them, which `prepare` finds.

    Without gradients. `ready` is the caller's: what was found once is not asked for again while it is the same one,
    so nobody may write to the parameters meanwhile.
    """
    with _open.set(_Open(rows, ready, prepare)):
        yield


def linear(
    x: Tensor, weight_OI: Tensor, bias_O: Tensor | None = None, *, bend: Bend = "none", onto: Tensor | None = None
) -> Tensor:
    """`onto + bend(W x + b)`, for matrices that a step of writing multiplies with. `gelu` is GPT-2's."""
    opened = _open.get()
    if opened is None or x.numel() != opened.rows * weight_OI.shape[1] or x.dtype != weight_OI.dtype:
        return _finish(F.linear(x, weight_OI, bias_O), bend, onto)
    rows, ready, prepare = opened
    if id(weight_OI) not in ready:
        ready[id(weight_OI)] = prepare(weight_OI, rows)
    product = ready[id(weight_OI)]
    if product is None:
        return _finish(F.linear(x, weight_OI, bias_O), bend, onto)
    under = None if onto is None else onto.reshape(rows, -1)
    return product(x.reshape(rows, -1), bias_O, bend, under).view(*x.shape[:-1], len(weight_OI))


def _finish(y: Tensor, bend: Bend, onto: Tensor | None) -> Tensor:
    match bend:
        case "none":
            pass
        case "relu":
            y = F.relu(y)
        case "gelu":
            y = F.gelu(y, approximate="tanh")
        case _:
            assert_never(bend)
    return y if onto is None else onto + y
