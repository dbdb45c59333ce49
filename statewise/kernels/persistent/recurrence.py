"""A recurrence over a whole sequence as one kernel forward and one backward; what need not wait is one product.

Before the kernel: the gates' input projection of all time steps. After it: the gradients of the input, of both
matrices and of the biases, each a single product over all time steps, summed in float32.

A short sequence takes the kernels less time than the host needs to ask for them. So every op here is one that the
kernels need: forward keeps what it has cast or padded for backward, and buffers that are filled alike are one.

B batch, T time, I input width, D width, P padded width, G gates times D (or times P), N time steps of all rows.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from statewise.core import transformed
from statewise.kernels.gradients import bias_gradient, is_wanted, matrix_gradient, through
from statewise.kernels.persistent.driver import Kernel, Run, alone_on, launch, pointer
from statewise.kernels.persistent.padding import across, cast, first, narrow, wide
from statewise.kernels.persistent.plan import GATES, Cell
from statewise.kernels.persistent.stall import PATIENCE_SECONDS, address, raise_if_stalled

Memory = Literal["gates", "cell"]
_memory: ContextVar[Memory] = ContextVar("recurrent_memory", default="gates")


@contextmanager
def remember(what: Memory) -> Iterator[None]:
    """What forward keeps for backward: the gates of all time steps, or only the cell, the gates then computed again."""
    token = _memory.set(what)
    try:
        yield
    finally:
        _memory.reset(token)


class Tensors(NamedTuple):
    """Everything a gradient can flow to. `c_BD` is the LSTM's, `b_u_D` the GRU's; a state of zeros may be absent."""

    x_BTI: Tensor
    h_BD: Tensor | None
    c_BD: Tensor | None
    w_GI: Tensor
    u_GD: Tensor
    b_G: Tensor
    b_u_D: Tensor | None


class Kept(NamedTuple):
    """What backward reads beyond the tensors themselves."""

    y_TBP: Tensor | None = None  # with the first state in front
    cells_TBP: Tensor | None = None
    saved_TBP4: Tensor | None = None  # the gates
    c0_BP: Tensor | None = None  # in float32, or the bits of it
    x_NI: Tensor | None = None  # in the dtype of the computation, time steps first, as are the matrices
    w_GI: Tensor | None = None
    u_GP: Tensor | None = None


class Work(NamedTuple):
    """What is to be done, apart from the tensors."""

    cell: Cell
    forward: Kernel
    backward: Kernel
    dtype: torch.dtype
    lengths_B: Tensor | None
    equation: Callable[[Tensors], tuple[Tensor, ...]]
    keep: bool  # for a backward
    memory: Memory


def recur(
    cell: Cell,
    kernels: tuple[Kernel, Kernel],
    dtype: torch.dtype,
    tensors: Tensors,
    lengths_B: Tensor | None,
    equation: Callable[[Tensors], tuple[Tensor, ...]],
) -> tuple[Tensor, ...]:
    """y [B, T, D], the last state, and the last cell where there is one."""
    raise_if_stalled()
    work = Work(cell, *kernels, dtype, lengths_B, equation, is_wanted(tensors), _memory.get())
    if not work.keep and not transformed():
        with alone_on(tensors.x_BTI.device):
            return forward(work.forward, work.dtype, tensors, work.lengths_B, keep=None)[0]
    outputs: tuple[Tensor, ...] = _Recurrence.apply(work, *tensors)  # type: ignore[no-untyped-call]  # torch leaves it untyped
    return outputs


class _Recurrence(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, work: Work, *values: Tensor | None) -> tuple[Tensor, ...]:
        tensors = Tensors(*values)  # type: ignore[arg-type]  # apply passes them on one by one
        with alone_on(tensors.x_BTI.device):
            outputs, kept = forward(
                work.forward, work.dtype, tensors, work.lengths_B, keep=work.memory if work.keep else None
            )
        if work.keep:
            ctx.work = work
            ctx.save_for_backward(*values, *kept)
            ctx.set_materialize_grads(False)  # zeros for outputs that nobody used would be made one by one, and cast
        return outputs

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        raise_if_stalled()
        saved = ctx.saved_tensors
        values = saved[: len(Tensors._fields)]
        tensors = Tensors(*values)
        if torch.is_grad_enabled():  # a gradient of this gradient is wanted: only the equation has one
            return None, *through(ctx.work.equation(tensors), values, gradients)
        with alone_on(tensors.x_BTI.device):
            wanted = Tensors(*ctx.needs_input_grad[1:])
            return None, *_backward(ctx.work, tensors, Kept(*saved[len(values) :]), gradients, wanted)


def _exchange(kernel: Kernel, *extent: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Memory through which blocks speak to each other; values that are their own flags begin as "not there yet"."""
    made = torch.empty(*extent, dtype=dtype, device=device)
    if kernel.plan.marked:
        made.view(torch.int16).fill_(-1)
    return made


def forward(
    kernel: Kernel, dtype: torch.dtype, tensors: Tensors, lengths_B: Tensor | None, *, keep: Memory | None
) -> tuple[tuple[Tensor, ...], Kept]:
    """Outputs, and what a backward will read: with the gates, without them, or nothing."""
    x_BTI, h_BD, c_BD, w_GI, u_GD, b_G, b_u_D = tensors
    cell, padded, device = kernel.plan.cell, kernel.plan.width, x_BTI.device
    (batch, time, inputs), width, gates, lstm = x_BTI.shape, u_GD.shape[1], GATES[cell], cell == "lstm"
    x_NI = cast(x_BTI.transpose(0, 1), dtype).reshape(time * batch, inputs)
    w_GI = wide(cast(w_GI, dtype), padded, gates=gates)
    u_GP = wide(cast(u_GD, dtype), padded, gates=gates, columns=True)
    a_NG = F.linear(x_NI, w_GI, wide(cast(b_G, dtype), padded, gates=gates))

    # A cell at zeros needs no memory of its own: one more row of zeros in front, and two of 16 bits are one of 32.
    ahead = 2 if lstm and c_BD is None else 1
    assert not lstm or (h_BD is None) == (c_BD is None), "a state is there or not: half of one would lie in the other"
    whole_TBP = _exchange(kernel, ahead + time, batch, padded, dtype=dtype, device=device)
    y_TBP = whole_TBP[1:] if ahead > 1 else whole_TBP
    c0_BP = None if c_BD is None else across(cast(c_BD, torch.float32), padded)
    if ahead > 1:
        c0_BP = whole_TBP[:2].zero_()
    elif h_BD is None or padded > width:
        y_TBP[0].zero_()
    if h_BD is not None:
        first(y_TBP[0], width).copy_(h_BD)
    dtypes = [u_GD.dtype if part is None else part.dtype for part in ((h_BD, c_BD) if lstm else (h_BD,))]
    short = all(wanted is dtype for wanted in dtypes)
    last = torch.empty(len(dtypes) * batch, padded, dtype=dtype if short else torch.float32, device=device)
    cells_TBP = torch.empty(time, batch, padded, device=device) if lstm and keep else None
    saved_TBP4 = None
    if keep == "gates" and gates > 1:
        saved_TBP4 = torch.empty(time, batch, padded, 4, dtype=dtype, device=device)
    b_u_P = None if b_u_D is None else across(cast(b_u_D, torch.float32), padded)
    _run(
        kernel,
        Run(
            x=a_NG.data_ptr(),
            w=u_GP.data_ptr(),
            b_u=pointer(b_u_P),
            c0=pointer(c0_BP),
            lengths=pointer(lengths_B),
            y=y_TBP.data_ptr(),
            saved=pointer(saved_TBP4),
            cells=pointer(cells_TBP),
            h_out=last.data_ptr(),
            c_out=last.data_ptr() + last.nbytes // 2 if lstm else None,
            T=time,
            B=batch,
            short_last=short,
        ),
        device,
    )
    outputs = (first(y_TBP[1:], width).transpose(0, 1), *_split(first(last, width), dtypes))
    if keep is None:
        return outputs, Kept()
    again = keep == "cell" and x_NI.data_ptr() != x_BTI.data_ptr()  # whoever saves memory keeps no copy of x
    return outputs, Kept(y_TBP, cells_TBP, saved_TBP4, c0_BP, None if again else x_NI, w_GI, u_GP)


def _split(last: Tensor, dtypes: list[torch.dtype]) -> Sequence[Tensor]:
    """The parts of the last state, which lie below each other, in dtypes of their own."""
    if len(set(dtypes)) == 1:
        last = cast(last, dtypes[0])
    # No part knows of the other: a view of what both lie in could not be written to.
    parts = (last,) if len(dtypes) == 1 else last.unsafe_chunk(2)
    return [cast(part, dtype) for part, dtype in zip(parts, dtypes, strict=True)]


def _run(kernel: Kernel, run: Run, device: torch.device) -> None:
    run.alarm, run.patience = address(), int(PATIENCE_SECONDS * 1e9)
    counters = None
    if kernel.plan.kind == "wide":
        counters = torch.zeros(run.T, kernel.plan.grid(run.B)[1], kernel.plan.turns, dtype=torch.int32, device=device)
        run.counters = counters.data_ptr()
    launch(kernel, run, batch=run.B)  # memory given back now is reused on this stream alone, after the kernel


def _backward(
    work: Work, tensors: Tensors, kept: Kept, gradients: tuple[Tensor | None, ...], wanted: Any
) -> tuple[Tensor | None, ...]:
    x_BTI, h_BD, c_BD, w_GI, u_GD, b_G, b_u_D = tensors
    y_TBP, cells_TBP, saved_TBP4, c0_BP, x_NI, w16_GI, u_GP = kept
    assert y_TBP is not None
    assert w16_GI is not None
    assert u_GP is not None
    gates, padded, dtype, device = GATES[work.cell], work.backward.plan.width, work.dtype, x_BTI.device
    (batch, time, inputs), width = x_BTI.shape, u_GD.shape[1]
    rows = time * batch
    if x_NI is None:
        x_NI = cast(x_BTI.transpose(0, 1), dtype).reshape(rows, inputs)
    before_NP = y_TBP[:-1].view(rows, padded)
    if saved_TBP4 is None and gates > 1:
        saved_TBP4 = _gates_again(work, tensors, x_NI, w16_GI, u_GP, before_NP).view(time, batch, padded, 4)

    if gradients[0] is None:
        dy_TBP = torch.zeros(time, batch, padded, dtype=dtype, device=device)
    else:
        dy_TBP = across(cast(gradients[0].transpose(0, 1), dtype), padded)
    into_last = [None if part is None else across(cast(part, torch.float32), padded) for part in gradients[1:]]
    parts, ends = len(into_last), None
    if wanted.h_BD or wanted.c_BD:  # what the kernel says of the first state
        ends = torch.empty(parts, batch, padded, device=device)
    d_NG = _exchange(work.backward, rows, gates * padded, dtype=dtype, device=device)
    candidate_NP = torch.empty(rows, padded, dtype=dtype, device=device) if work.cell == "gru" else None
    u_T = u_GP.mT.contiguous()
    _run(
        work.backward,
        Run(
            x=dy_TBP.data_ptr(),
            w=u_T.data_ptr(),
            c0=pointer(c0_BP),
            lengths=pointer(work.lengths_B),
            y=y_TBP.data_ptr(),
            saved=pointer(saved_TBP4),
            cells=pointer(cells_TBP),
            exchange=d_NG.data_ptr(),
            candidate=pointer(candidate_NP),
            dh=pointer(into_last[0]),
            dc=pointer(into_last[1]) if parts == 2 else None,
            h_out=pointer(ends),
            c_out=None if ends is None or parts == 1 else ends.data_ptr() + ends.nbytes // 2,
            T=time,
            B=batch,
        ),
        device,
    )

    dh = dc = dw = du = None
    if wanted.h_BD:
        assert h_BD is not None
        assert ends is not None
        dh = cast(first(torch.mm(d_NG[:batch], u_GP) + ends[0], width), h_BD.dtype)
    if wanted.c_BD:
        assert c_BD is not None
        assert ends is not None
        dc = cast(first(ends[1], width), c_BD.dtype)
    # Into W x, the GRU's candidate goes without the reset gate, which the part inside U h has passed.
    into = [d_NG] if candidate_NP is None else [d_NG[:, : 2 * padded], candidate_NP]
    if wanted.w_GI:
        dw = narrow(matrix_gradient(into, x_NI, w_GI.dtype), width, gates=gates)
    if wanted.u_GD:
        du = first(narrow(matrix_gradient([d_NG], before_NP, u_GD.dtype), width, gates=gates), width)
    dx = _input_gradient(into, w16_GI).view(time, batch, inputs).transpose(0, 1) if wanted.x_BTI else None
    db, db_u = _bias_gradients(d_NG, candidate_NP, b_G.dtype) if wanted.b_G or wanted.b_u_D else (None, None)
    return (
        dx if dx is None else cast(dx, x_BTI.dtype),
        dh,
        dc,
        dw,
        du,
        None if db is None else narrow(db, width, gates=gates),
        None if db_u is None or b_u_D is None else cast(db_u[:width], b_u_D.dtype),
    )


def _input_gradient(into: list[Tensor], w_GI: Tensor) -> Tensor:
    if len(into) == 1:
        return torch.mm(into[0], w_GI)
    gates_NG, candidate_NP = into
    w_gates, w_candidate = torch.split_with_sizes(w_GI, [gates_NG.shape[1], candidate_NP.shape[1]])
    return torch.mm(gates_NG, w_gates).addmm_(candidate_NP, w_candidate)


def _bias_gradients(d_NG: Tensor, candidate_NP: Tensor | None, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
    """Of b, and of the GRU's inner bias: its last third of the sums, in whose place b has the candidate's."""
    sums_G = bias_gradient(d_NG, dtype)
    if candidate_NP is None:
        return sums_G, None
    padded = candidate_NP.shape[1]
    return torch.cat([sums_G[: 2 * padded], bias_gradient(candidate_NP, dtype)]), sums_G[2 * padded :]


def _gates_again(work: Work, tensors: Tensors, x_NI: Tensor, w_GI: Tensor, u_GP: Tensor, before_NP: Tensor) -> Tensor:
    """What the forward kernel would have kept, for all time steps at once."""
    gates, padded = GATES[work.cell], work.backward.plan.width
    a_NG = F.linear(x_NI, w_GI, wide(cast(tensors.b_G, work.dtype), padded, gates=gates)).float()
    inner_NG = (before_NP @ u_GP.mT).float()
    if tensors.b_u_D is None:
        i, f, g, o = a_NG.add_(inner_NG).chunk(4, dim=1)
        return torch.stack([i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()], dim=-1).to(work.dtype)
    r, z = (a_NG + inner_NG)[:, : 2 * padded].sigmoid().chunk(2, dim=1)
    q = inner_NG[:, 2 * padded :] + across(tensors.b_u_D.float(), padded)
    return torch.stack([r, z, (a_NG[:, 2 * padded :] + r * q).tanh(), q], dim=-1).to(work.dtype)
