"""A recurrence over a whole sequence, forward and backward: the loop over time, and what does not depend on it.

Before the loop: the input projection of all time steps, with layer norm its normalisation too. After it: the gradients
of the input, of both matrices and of the biases, each a single product over all time steps. The gates overwrite the
projected input, so keeping them for backward takes no extra memory.

B batch, T time, I input width, D width, G gates times D, N time steps of all rows.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from statewise.core import transformed
from statewise.kernels.gradients import bias_gradient, is_wanted, matrix_gradient, through
from statewise.kernels.persistent import raise_if_stalled
from statewise.kernels.persistent import recurrence as persistent
from statewise.kernels.persistent.driver import Kernel, alone_on, pointer
from statewise.kernels.persistent.padding import cast
from statewise.kernels.persistent.plan import GATES, Cell
from statewise.kernels.stepped.loop import reserved_loop
from statewise.kernels.stepped.program import Run, Shape

_EPSILON = 1e-5  # torch.nn's, as in the kernel
_ALIGNED_BYTES = 16


class Tensors(NamedTuple):
    """Everything a gradient can flow to. `c_BD` is the LSTM's, `b_u_D` the GRU's, the last four are layer norm's."""

    x_BTI: Tensor
    h_BD: Tensor
    c_BD: Tensor | None
    w_GI: Tensor
    u_GD: Tensor
    b_G: Tensor
    b_u_D: Tensor | None = None
    input_G: Tensor | None = None
    recurrent_G: Tensor | None = None
    cell_D: Tensor | None = None
    cell_bias_D: Tensor | None = None


class Kept(NamedTuple):
    """What backward reads."""

    y_TBD: Tensor | None = None  # with the first state in front
    gates_NG: Tensor | None = None  # from a forward in one piece: [T, B, D, 4]
    inner: Tensor | None = None
    cells_TBD: Tensor | None = None
    spread_N4: Tensor | None = None
    plain_NG: Tensor | None = None  # layer norm: W x, and its mean and inverse deviation
    mean_N1: Tensor | None = None
    inverse_N1: Tensor | None = None


class Work(NamedTuple):
    """What is to be done, apart from the tensors."""

    cell: Cell
    dtype: torch.dtype
    lengths_B: Tensor | None
    equation: Callable[[Tensors], tuple[Tensor, ...]]
    whole: Kernel | None = None  # that makes the forward in one piece
    keep: bool = False  # for a backward


def recur(work: Work, tensors: Tensors) -> tuple[Tensor, ...]:
    """y [B, T, D], the last state, and the last cell where there is one."""
    if work.whole is not None:
        raise_if_stalled()
    work = work._replace(keep=is_wanted(tensors))
    if not work.keep and not transformed():
        with alone_on(tensors.x_BTI.device):
            return _forward(work, tensors)[0]
    outputs: tuple[Tensor, ...] = _Recurrence.apply(work, *tensors)  # type: ignore[no-untyped-call]  # torch leaves it untyped
    return outputs


class _Recurrence(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, work: Work, *values: Tensor | None) -> tuple[Tensor, ...]:
        tensors = Tensors(*values)  # type: ignore[arg-type]  # apply passes them on one by one
        with alone_on(tensors.x_BTI.device):
            outputs, kept = _forward(work, tensors)
        if work.keep:
            ctx.work = work
            ctx.save_for_backward(*values, *kept)
            ctx.set_materialize_grads(False)
        return outputs

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        if ctx.work.whole is not None:
            raise_if_stalled()
        saved = ctx.saved_tensors
        values = saved[: len(Tensors._fields)]
        tensors = Tensors(*values)
        if torch.is_grad_enabled():  # a gradient of this gradient is wanted: only the equation has one
            return None, *through(ctx.work.equation(tensors), values, gradients)
        kept, wanted = Kept(*saved[len(values) :]), Tensors(*ctx.needs_input_grad[1:])
        with alone_on(tensors.x_BTI.device):
            return None, *_backward(ctx.work, tensors, kept, gradients, wanted)


def _plain(value: Tensor, dtype: torch.dtype) -> Tensor:
    """Contiguous, and at an address from which several numbers can be read at once."""
    value = value.to(dtype).contiguous()
    return value.clone() if value.data_ptr() % _ALIGNED_BYTES else value


def _single(value: Tensor | None) -> Tensor | None:
    return None if value is None else _plain(value, torch.float32)


def _own(value: Tensor) -> Tensor:
    """A copy in float32, for the loop to write into."""
    return value.to(torch.float32, copy=True, memory_format=torch.contiguous_format)


def _given(value: Tensor | None, shape: Shape, batch: int, device: torch.device) -> Tensor:
    """The gradient of a part of the last state, for the loop to write into; zeros where that part is not used."""
    return torch.zeros(batch, shape.width, device=device) if value is None else _own(value)


def _time_first(x_BTI: Tensor, dtype: torch.dtype) -> Tensor:
    return cast(x_BTI.transpose(0, 1), dtype).reshape(-1, x_BTI.shape[2])


def _shape(work: Work, tensors: Tensors, direction: Any) -> Shape:
    (batch, width), normed = tensors.h_BD.shape, tensors.recurrent_G is not None
    by_unit = direction == "backward" and work.whole is not None
    return Shape.holding(batch, work.cell, direction, width, work.dtype, normed=normed, by_unit=by_unit)


def _share(work: Work, tensors: Tensors, x_NI: Tensor) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]:
    """The projected input of the gates, and what its normalisation's backward reads."""
    w_GI, b_G = cast(tensors.w_GI, work.dtype), cast(tensors.b_G, work.dtype)
    if tensors.input_G is None:
        return F.linear(x_NI, w_GI, b_G), None, None, None
    plain_NG = x_NI @ w_GI.mT
    gain_G = cast(tensors.input_G, work.dtype)
    a_NG, mean_N1, inverse_N1 = torch.native_layer_norm(plain_NG, [plain_NG.shape[1]], gain_G, b_G, _EPSILON)
    return a_NG, plain_NG, mean_N1, inverse_N1


def _in_one_piece(kernel: Kernel, work: Work, tensors: Tensors) -> tuple[tuple[Tensor, ...], Kept]:
    x_BTI, h_BD, c_BD, w_GI, u_GD, b_G, b_u_D, *_ = tensors
    given = persistent.Tensors(x_BTI, h_BD, c_BD, w_GI, u_GD, b_G, b_u_D)
    outputs, kept = persistent.forward(kernel, work.dtype, given, work.lengths_B, keep="gates" if work.keep else None)
    return outputs, Kept(kept.y_TBP, kept.saved_TBP4, None, kept.cells_TBP)


def _forward(work: Work, tensors: Tensors) -> tuple[tuple[Tensor, ...], Kept]:
    if work.whole is not None:
        return _in_one_piece(work.whole, work, tensors)
    x_BTI, h_BD, c_BD = tensors.x_BTI, tensors.h_BD, tensors.c_BD
    shape = _shape(work, tensors, "forward")
    (batch, time, _), width, dtype, device = x_BTI.shape, shape.width, work.dtype, x_BTI.device
    a_NG, *normalised = _share(work, tensors, _time_first(x_BTI, dtype))

    def empty(*extent: int, like: torch.dtype = dtype) -> Tensor:
        return torch.empty(*extent, dtype=like, device=device)

    y_TBD = empty(time + 1, batch, width)
    y_TBD[0] = h_BD
    h = _own(h_BD)
    inner = cells_TBD = spread_N4 = c = None
    if c_BD is not None:
        c = _own(c_BD)
        cells_TBD = empty(time, batch, width, like=torch.float32) if work.keep else None
    if work.keep and work.cell == "gru":
        inner = empty(time, batch, width)
    if work.keep and shape.normed:
        inner, spread_N4 = empty(*a_NG.shape), empty(time * batch, 4, like=torch.float32)
    floats = [_single(value) for value in (tensors.b_u_D, tensors.recurrent_G, tensors.cell_D, tensors.cell_bias_D)]
    run = Run(
        gates=pointer(a_NG),
        inner=pointer(inner),
        y=pointer(y_TBD),
        cells=pointer(cells_TBD),
        lengths=pointer(work.lengths_B),
        h=pointer(h),
        c=pointer(c),
        spread=pointer(spread_N4),
        T=time,
        B=batch,
        **dict(zip(("b_u", "gain", "cell_gain", "cell_bias"), map(pointer, floats), strict=True)),
    )
    with reserved_loop(shape, device) as (loop, graphs):
        loop.read(tensors.u_GD, h_BD)
        loop.run(run, graphs=graphs)
    outputs = [y_TBD[1:].transpose(0, 1), cast(h, h_BD.dtype)]
    if c_BD is not None:
        assert c is not None
        outputs.append(cast(c, c_BD.dtype))
    return tuple(outputs), Kept(y_TBD, a_NG, inner, cells_TBD, spread_N4, *normalised)


def _backward(
    work: Work, tensors: Tensors, kept: Kept, gradients: tuple[Tensor | None, ...], wanted: Any
) -> tuple[Tensor | None, ...]:
    x_BTI, h_BD, c_BD = tensors.x_BTI, tensors.h_BD, tensors.c_BD
    y_TBD = kept.y_TBD
    assert y_TBD is not None
    shape = _shape(work, tensors, "backward")
    (batch, time, inputs), width, dtype, device = x_BTI.shape, shape.width, work.dtype, x_BTI.device
    rows, gates = time * batch, GATES[work.cell] * width

    da_NG = y_TBD.new_empty(rows, gates)
    du_NX = y_TBD.new_empty(rows, gates if shape.normed else width) if shape.normed or work.cell == "gru" else None
    gain_sum_BG = torch.zeros(batch, gates, device=device) if shape.normed else None
    cell_sum_B2D = torch.zeros(batch, 2, width, device=device) if shape.normed else None
    passed_BD = _given(gradients[1], shape, batch, device)
    dc_BD = None if c_BD is None else _given(gradients[2], shape, batch, device)
    if gradients[0] is None:
        dy_TBD = torch.zeros(time, batch, width, dtype=dtype, device=device)
    else:
        dy_TBD = _plain(gradients[0].transpose(0, 1), dtype)
    floats = [_single(value) for value in (c_BD, tensors.recurrent_G, tensors.cell_D, tensors.cell_bias_D)]
    run = Run(
        gates=pointer(kept.gates_NG),
        inner=pointer(kept.inner),
        y=pointer(y_TBD),
        cells=pointer(kept.cells_TBD),
        lengths=pointer(work.lengths_B),
        h=pointer(passed_BD),
        c=pointer(dc_BD),
        dy=pointer(dy_TBD),
        da=pointer(da_NG),
        du=pointer(du_NX),
        spread=pointer(kept.spread_N4),
        gain_sum=pointer(gain_sum_BG),
        cell_sum=pointer(cell_sum_B2D),
        T=time,
        B=batch,
        **dict(zip(("c0", "gain", "cell_gain", "cell_bias"), map(pointer, floats), strict=True)),
    )
    with reserved_loop(shape, device) as (loop, graphs):
        loop.read(tensors.u_GD, None)
        loop.run(run, graphs=graphs)
        dh = (loop.carried(batch) + passed_BD).to(h_BD.dtype) if wanted.h_BD else None

    gradients_of = dict.fromkeys(Tensors._fields)
    gradients_of["h_BD"] = dh
    if c_BD is not None and wanted.c_BD:
        assert dc_BD is not None
        gradients_of["c_BD"] = dc_BD.to(c_BD.dtype)
    if wanted.u_GD:
        inside = _into_product(work.cell, da_NG, du_NX, width)
        gradients_of["u_GD"] = matrix_gradient(inside, y_TBD[:-1].view(rows, width), tensors.u_GD.dtype)
    if tensors.b_u_D is not None and wanted.b_u_D:
        assert du_NX is not None
        gradients_of["b_u_D"] = bias_gradient(du_NX, tensors.b_u_D.dtype)
    if shape.normed:
        assert gain_sum_BG is not None
        assert cell_sum_B2D is not None
        sums = {"recurrent_G": gain_sum_BG, "cell_D": cell_sum_B2D[:, 0], "cell_bias_D": cell_sum_B2D[:, 1]}
        gradients_of |= {name: value.sum(0).to(getattr(tensors, name).dtype) for name, value in sums.items()}
        da_NG = _through_input_norm(work, tensors, kept, da_NG, gradients_of)
    elif wanted.b_G:
        gradients_of["b_G"] = bias_gradient(da_NG, tensors.b_G.dtype)
    if wanted.w_GI:
        gradients_of["w_GI"] = matrix_gradient([da_NG], _time_first(x_BTI, dtype), tensors.w_GI.dtype)
    if wanted.x_BTI:
        dx_NI = cast(torch.mm(da_NG, cast(tensors.w_GI, dtype)), x_BTI.dtype)
        gradients_of["x_BTI"] = dx_NI.view(time, batch, inputs).transpose(0, 1)
    return tuple(gradients_of.values())


def _into_product(cell: Cell, da_NG: Tensor, du_NX: Tensor | None, width: int) -> list[Tensor]:
    """The gradient of U h, in parts: the GRU's candidate has passed the reset gate, layer norm changes all of it."""
    if du_NX is None:
        return [da_NG]
    return [da_NG[:, : 2 * width], du_NX] if cell == "gru" else [du_NX]


def _through_input_norm(
    work: Work, tensors: Tensors, kept: Kept, da_NG: Tensor, found: dict[str, Tensor | None]
) -> Tensor:
    """From the gradient of the normalised share to that of W x; those of gain and bias are found on the way."""
    assert tensors.input_G is not None
    assert kept.plain_NG is not None
    plain_NG = kept.plain_NG
    dplain_NG, dgain_G, db_G = torch.ops.aten.native_layer_norm_backward(
        da_NG,
        plain_NG,
        [plain_NG.shape[1]],
        kept.mean_N1,
        kept.inverse_N1,
        tensors.input_G.to(work.dtype),
        tensors.b_G.to(work.dtype),
        [True, True, True],
    )
    found["input_G"], found["b_G"] = dgain_G.to(tensors.input_G.dtype), db_G.to(tensors.b_G.dtype)
    moved: Tensor = dplain_NG
    return moved
