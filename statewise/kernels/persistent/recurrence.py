"""A recurrence over a whole sequence as one kernel forward and one backward; what need not wait is one product.

Before the kernel: the input's share of the gates of all moments. After it: the gradients of the input, of both
matrices and of the biases, each a single product over all moments, summed in float32.

B batch, T time, I input width, D width, P padded width, G gates times D (or times P).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from statewise.kernels.moment_sums import bias_gradient, matrix_gradient
from statewise.kernels.persistent.alarm import PATIENCE_SECONDS, address, raise_if_stalled
from statewise.kernels.persistent.driver import Run, kernel, launch, pointer
from statewise.kernels.persistent.plan import GATES, Cell, Plan
from statewise.kernels.second_order import through

Memory = Literal["gates", "cell"]
_memory: ContextVar[Memory] = ContextVar("recurrent_memory", default="gates")


@contextmanager
def remember(what: Memory) -> Iterator[None]:
    """What forward keeps for backward: the gates of all moments, or only the cell, the gates then computed again."""
    token = _memory.set(what)
    try:
        yield
    finally:
        _memory.reset(token)


class Tensors(NamedTuple):
    """Everything a gradient can flow to. `c_BD` is the LSTM's, `b_u_D` the GRU's."""

    x_TBI: Tensor
    h_BD: Tensor
    c_BD: Tensor | None
    w_GI: Tensor
    u_GD: Tensor
    b_G: Tensor
    b_u_D: Tensor | None


class Work(NamedTuple):
    """What is to be done, apart from the tensors."""

    cell: Cell
    forward: Plan
    backward: Plan
    dtype: torch.dtype
    lengths_B: Tensor | None
    equation: Callable[[Tensors], tuple[Tensor, ...]]
    keep: bool = False  # for a backward
    memory: Memory = "gates"


def recur(work: Work, tensors: Tensors) -> tuple[Tensor, ...]:
    """y [T, B, D], the last state, and the last cell where there is one."""
    raise_if_stalled()
    wanted = any(value is not None and value.requires_grad for value in tensors)
    work = work._replace(keep=torch.is_grad_enabled() and wanted, memory=_memory.get())
    found: tuple[Tensor, ...] = _Recurrence.apply(work, *tensors)  # type: ignore[no-untyped-call]  # torch leaves it untyped
    return found


class _Recurrence(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, work: Work, *values: Tensor | None) -> tuple[Tensor, ...]:
        tensors = Tensors(*values)  # type: ignore[arg-type]  # apply passes them on one by one
        with torch.autocast("cuda", enabled=False), torch.cuda.device(tensors.x_TBI.device):
            outputs, kept = _forward(work, tensors)
        ctx.work = work
        ctx.save_for_backward(*values, *kept)
        return outputs

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        raise_if_stalled()
        values = ctx.saved_tensors[: len(Tensors._fields)]
        tensors = Tensors(*values)
        if torch.is_grad_enabled():  # a gradient of this gradient is wanted: only the equation has one
            return None, *through(ctx.work.equation(tensors), values, gradients)
        kept = ctx.saved_tensors[len(values) :]
        with torch.autocast("cuda", enabled=False), torch.cuda.device(tensors.x_TBI.device):
            return None, *_backward(ctx.work, tensors, kept, gradients, ctx.needs_input_grad[1:])


def _wide(value: Tensor, padded: int, *, gates: int = 1, columns: bool = False) -> Tensor:
    """Rows of each gate up to the padded width, in zeros: such units stay at zero and pass nothing on."""
    width = value.shape[0] // gates
    if padded == width:
        return value.contiguous()
    rest = value.shape[1:]
    value = value.view(gates, width, -1)
    value = F.pad(value, (0, padded - width if columns else 0, 0, padded - width))
    return value.reshape(gates * padded, *((padded,) if columns else rest))


def _across(value: Tensor, padded: int) -> Tensor:
    """[..., D] to a contiguous [..., P]."""
    missing = padded - value.shape[-1]
    return F.pad(value, (0, missing)) if missing else value.contiguous()


def _narrow(value: Tensor, width: int, *, gates: int) -> Tensor:
    """Gate rows back to the true width."""
    padded = value.shape[0] // gates
    return value if padded == width else value.view(gates, padded, -1)[:, :width].reshape(gates * width, -1)


def _forward(work: Work, tensors: Tensors) -> tuple[tuple[Tensor, ...], tuple[Tensor | None, ...]]:
    x_TBI, h_BD, c_BD, w_GI, u_GD, b_G, b_u_D = tensors
    gates, padded, dtype = GATES[work.cell], work.forward.width, work.dtype
    (time, batch, inputs), width = x_TBI.shape, h_BD.shape[1]
    x_NI = x_TBI.to(dtype).reshape(time * batch, inputs)
    w_GI = _wide(w_GI.to(dtype), padded, gates=gates)
    u_GP = _wide(u_GD.to(dtype), padded, gates=gates, columns=True)
    a_NG = torch.addmm(_wide(b_G.to(dtype), padded, gates=gates), x_NI, w_GI.mT)

    y_TBP = torch.empty(time + 1, batch, padded, dtype=dtype, device=x_TBI.device)
    y_TBP[0] = _across(h_BD, padded)
    if work.forward.marked:
        y_TBP[1:].view(torch.int16).fill_(-1)  # "not there yet"
    keep_gates = work.keep and gates > 1 and work.memory == "gates"
    saved = torch.empty(time, batch, padded, 4, dtype=dtype, device=x_TBI.device) if keep_gates else None
    h_BP = torch.empty(batch, padded, device=x_TBI.device)
    c0_BP = c_BP = cells_TBP = None
    if c_BD is not None:
        c0_BP, c_BP = _across(c_BD.float(), padded), torch.empty_like(h_BP)
        cells_TBP = torch.empty(time, batch, padded, device=x_TBI.device) if work.keep else None
    b_u_P = None if b_u_D is None else _across(b_u_D.float(), padded)
    _run(
        work.forward,
        work,
        (time, batch),
        Run(
            x=pointer(a_NG),
            w=pointer(u_GP),
            b_u=pointer(b_u_P),
            c0=pointer(c0_BP),
            y=pointer(y_TBP),
            saved=pointer(saved),
            cells=pointer(cells_TBP),
            h_out=pointer(h_BP),
            c_out=pointer(c_BP),
        ),
    )
    outputs = [y_TBP[1:, :, :width], h_BP[:, :width].to(h_BD.dtype)]
    if c_BD is not None:
        assert c_BP is not None
        outputs.append(c_BP[:, :width].to(c_BD.dtype))
    return tuple(outputs), ((y_TBP, saved, cells_TBP) if work.keep else (None, None, None))


def _run(plan: Plan, work: Work, extent: tuple[int, int], run: Run) -> None:
    time, batch = extent
    run.T, run.B, run.lengths = time, batch, pointer(work.lengths_B)
    run.alarm, run.patience = address(), int(PATIENCE_SECONDS * 1e9)
    counters = None
    if plan.kind == "wide":
        counters = torch.zeros(time, plan.grid(batch)[1], dtype=torch.int32, device=torch.cuda.current_device())
        run.counters = pointer(counters)
    loaded = kernel(plan, half=work.dtype == torch.float16, device=torch.cuda.current_device())
    launch(loaded, run, batch=batch)  # memory given back now is reused on this stream alone, after the kernel


def _backward(
    work: Work,
    tensors: Tensors,
    kept: tuple[Tensor | None, ...],
    gradients: tuple[Tensor, ...],
    wanted: tuple[bool, ...],
) -> tuple[Tensor | None, ...]:
    x_TBI, h_BD, c_BD, w_GI, u_GD, b_G, b_u_D = tensors
    y_TBP, saved, cells_TBP = kept
    assert y_TBP is not None
    gates, padded, dtype = GATES[work.cell], work.backward.width, work.dtype
    (time, batch, inputs), width = x_TBI.shape, h_BD.shape[1]
    rows = time * batch
    x_NI = x_TBI.to(dtype).reshape(rows, inputs)
    w16_GI = _wide(w_GI.to(dtype), padded, gates=gates)
    u_GP = _wide(u_GD.to(dtype), padded, gates=gates, columns=True)
    before_NP = y_TBP[:-1].view(rows, padded)
    if saved is None and gates > 1:
        saved = _gates_again(work, tensors, x_NI, w16_GI, u_GP, before_NP).view(time, batch, padded, 4)

    dy_TBP = _across(gradients[0].to(dtype), padded)
    dh_BP = _across(gradients[1].float(), padded)
    d_NG = torch.empty(rows, gates * padded, dtype=dtype, device=x_TBI.device)
    if work.backward.marked:
        d_NG.view(torch.int16).fill_(-1)
    candidate_NP = torch.empty(rows, padded, dtype=dtype, device=x_TBI.device) if work.cell == "gru" else None
    passed_BP = torch.empty(batch, padded, device=x_TBI.device)
    c0_BP = dc_BP = dc0_BP = None
    if c_BD is not None:
        c0_BP, dc_BP, dc0_BP = _across(c_BD.float(), padded), _across(gradients[2].float(), padded), passed_BP.clone()
    u_T = u_GP.mT.contiguous()
    _run(
        work.backward,
        work,
        (time, batch),
        Run(
            x=pointer(dy_TBP),
            w=pointer(u_T),
            c0=pointer(c0_BP),
            y=pointer(y_TBP),
            saved=pointer(saved),
            cells=pointer(cells_TBP),
            exchange=pointer(d_NG),
            candidate=pointer(candidate_NP),
            dh=pointer(dh_BP),
            dc=pointer(dc_BP),
            h_out=pointer(passed_BP),
            c_out=pointer(dc0_BP),
        ),
    )

    # Into W x, the GRU's candidate goes without the reset gate, which the part inside U h has passed.
    parts = [(d_NG, slice(None))]
    if candidate_NP is not None:
        parts = [(d_NG[:, : 2 * padded], slice(0, 2 * padded)), (candidate_NP, slice(2 * padded, None))]
    dx = dh = dc = dw = du = db = db_u = None
    if wanted[0]:
        dx = parts[0][0] @ w16_GI[parts[0][1]]
        for d, gate in parts[1:]:
            dx = dx.addmm_(d, w16_GI[gate])
        dx = dx.view(time, batch, inputs).to(x_TBI.dtype)
    if wanted[1]:
        dh = (d_NG[:batch] @ u_GP + passed_BP)[:, :width].to(h_BD.dtype)
    if c_BD is not None and wanted[2]:
        assert dc0_BP is not None
        dc = dc0_BP[:, :width].to(c_BD.dtype)
    if wanted[3]:
        dw = _narrow(matrix_gradient([d for d, _ in parts], x_NI, w_GI.dtype), width, gates=gates)
    if wanted[4]:
        du = _narrow(matrix_gradient([d_NG], before_NP, u_GD.dtype), width, gates=gates)[:, :width]
    if wanted[5]:
        db = bias_gradient([d for d, _ in parts], b_G.dtype)
        db = _narrow(db[:, None], width, gates=gates)[:, 0]
    if b_u_D is not None and wanted[6]:
        db_u = d_NG[:, 2 * padded :].sum(0, dtype=torch.float32)[:width].to(b_u_D.dtype)
    return dx, dh, dc, dw, du, db, db_u


def _gates_again(work: Work, tensors: Tensors, x_NI: Tensor, w_GI: Tensor, u_GP: Tensor, before_NP: Tensor) -> Tensor:
    """What the forward kernel would have kept, for all moments at once."""
    gates, padded = GATES[work.cell], work.backward.width
    a_NG = torch.addmm(_wide(tensors.b_G.to(work.dtype), padded, gates=gates), x_NI, w_GI.mT).float()
    inner_NG = (before_NP @ u_GP.mT).float()
    if tensors.b_u_D is None:
        i, f, g, o = a_NG.add_(inner_NG).chunk(4, dim=1)
        return torch.stack([i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()], dim=-1).to(work.dtype)
    r, z = (a_NG + inner_NG)[:, : 2 * padded].sigmoid().chunk(2, dim=1)
    q = inner_NG[:, 2 * padded :] + _across(tensors.b_u_D.float(), padded)
    return torch.stack([r, z, (a_NG[:, 2 * padded :] + r * q).tanh(), q], dim=-1).to(work.dtype)
