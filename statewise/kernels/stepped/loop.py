"""The loop over time: one product and one kernel per step, many steps per launch.

A CUDA graph holds addresses. So the product reads and writes tensors with fixed addresses, and
the kernel of a step finds everything else, the step's own number included, through a small record in the GPU's memory.
One graph of a few steps then serves every length, every input and every weight of a shape.

B batch, D width, P padded width, G gates times D (or times P).
"""

import ctypes
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from statewise.core import capturing
from statewise.kernels.persistent.driver import check, library
from statewise.kernels.persistent.plan import GATES
from statewise.kernels.stepped.program import Place, Program, Run, Shape, launch, load, threads_of

# Steps a graph has. A loop runs the longest ones first; the remaining steps are launched one by one.
GRAPH_STEPS = (64, 8)
_ALIGNED = 8  # numbers: rows of 16 bytes, without which a product takes a slower way
_TURNED_FROM = 64  # rows from which the backward product is faster with its matrix turned
_KEPT = 16  # shapes


class Loop:
    """The steps of one shape: their memory, kernels and graphs."""

    def __init__(self, shape: Shape, device: torch.device) -> None:
        self.shape = shape
        self.lock = threading.Lock()
        self.program = Program.of(shape)
        self._kernels = load(self.program, device.index or 0)
        self._threads = threads_of(
            blocks=self.program.blocks(shape),
            threads=self.program.threads,
            shared_bytes=self.program.shared_bytes,
            early=self._kernels.early,
        )
        self.device = device
        self.stream = torch.cuda.current_stream(device)  # that its steps are launched on
        self._graphs: dict[int, Callable[[], None]] = {}
        padded = -(-shape.width // _ALIGNED) * _ALIGNED
        gates = GATES[shape.cell] * padded
        forward = shape.direction == "forward"
        self._turned = not forward and shape.rows >= _TURNED_FROM

        def zeros(*extent: int) -> Tensor:
            return torch.zeros(*extent, dtype=shape.dtype, device=device)

        self._matrix = zeros(padded, gates) if self._turned else zeros(gates, padded)
        self._operand_BX = zeros(shape.rows, padded if forward else gates)
        self._product_BX = zeros(shape.rows, gates if forward else padded)
        self._record = torch.zeros(ctypes.sizeof(Run), dtype=torch.uint8, device=device)
        self._padded = padded
        self._place = Place(self._product_BX.data_ptr(), self._operand_BX.data_ptr(), shape.rows, shape.width, padded)

    def read(self, u_GD: Tensor, h_BD: Tensor | None) -> None:
        """The matrix, and the state to begin with; backward begins with a gradient of 0."""
        width, gates = self.shape.width, GATES[self.shape.cell]
        u = u_GD.reshape(gates, width, width)
        if self._turned:
            self._matrix.view(self._padded, gates, -1)[:width, :, :width].copy_(u.permute(2, 0, 1))
        else:
            self._matrix.view(gates, self._padded, -1)[:, :width, :width].copy_(u)
        if h_BD is None:
            self._operand_BX.zero_()
        else:
            self._operand_BX[: len(h_BD), :width].copy_(h_BD)

    def run(self, run: Run, *, graphs: bool) -> None:
        """All steps. `graphs`: by graphs of our own, where there are enough steps for one."""
        pieces = list(_pieces(run.T)) if graphs else []
        for size in set(pieces) - self._graphs.keys():
            with _capture_lock:  # streams to capture on are shared by the shapes of a stream
                self._graphs[size] = self._captured(size)
        self._begin(run)
        for size in pieces:
            self._graphs[size]()
        self._steps(run.T - sum(pieces))

    def carried(self, batch: int) -> Tensor:
        """What the gradient of the last step carries back through U: [B, D], overwritten by the next run."""
        self._multiply()
        return self._product_BX[:batch, : self.shape.width]

    def _multiply(self) -> None:
        across = self._matrix.mT if self._turned or self.shape.direction == "forward" else self._matrix
        torch.mm(self._operand_BX, across, out=self._product_BX)

    def _steps(self, count: int) -> None:
        record = ctypes.c_void_p(self._record.data_ptr())
        for k in range(count):
            self._multiply()
            launch(self._kernels.step, (record, self._place, ctypes.c_int(k)), self._threads)

    def _begin(self, run: Run) -> None:
        launch(self._kernels.begin, (run, ctypes.c_void_p(self._record.data_ptr())))

    def _advance(self, steps: int) -> None:
        launch(self._kernels.advance, (ctypes.c_void_p(self._record.data_ptr()), ctypes.c_int(steps)))

    def _piece(self, count: int) -> None:
        """What a graph holds."""
        self._steps(count)
        self._advance(count)

    def _captured(self, count: int) -> Callable[[], None]:
        """So many steps as one launch; one by one, with a warning, where capture is refused."""
        # Once for real, on the stream we are on: what cuBLAS and the driver set up at first use cannot be captured. No
        # step is due, so nothing changes but the product.
        self._begin(Run())
        self._piece(1)
        try:
            here = torch.cuda.current_stream(self.device)
            beside = _beside(self.device, here.cuda_stream)
            beside.stream.wait_stream(here)
            return _capture(lambda: self._piece(count), beside.stream, beside.pool).replay
        except RuntimeError as reason:
            warnings.warn(f"a recurrent layer runs without CUDA graphs: {reason}", RuntimeWarning, stacklevel=2)
            return lambda: self._piece(count)


def _capture(work: Callable[[], object], stream: torch.cuda.Stream, pool: Any) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    try:
        with capturing(stream.device, pool), torch.cuda.stream(stream):
            graph.capture_begin(pool=pool, capture_error_mode="thread_local")  # other threads may allocate meanwhile
            try:
                work()
            finally:
                graph.capture_end()
    except RuntimeError:
        _beside.cache_clear()  # PyTorch's allocator of pinned memory takes no other capture into this pool
        raise
    return graph


def _pieces(steps: int) -> Iterator[int]:
    for size in GRAPH_STEPS:
        yield from [size] * (steps // size)
        steps %= size


class Beside(NamedTuple):
    """Where the graphs of one stream are captured.

    A graph also holds the address of cuBLAS's scratch memory, which PyTorch keeps by stream and gives up when any graph
    captured on that stream goes, or when somebody clears it. On this stream nothing is multiplied but in captures, so
    the scratch memory comes from the pool, which stays as long as any of its graphs, whoever gives it up. Graphs of one
    stream may share it, since they run sequentially. PyTorch's own streams would not do: they may be anybody's.
    """

    stream: torch.cuda.Stream
    pool: Any
    # Never replayed, never deleted: PyTorch takes no graph into a pool that has lost its last one.
    anchor: torch.cuda.CUDAGraph


@cache
def _beside(device: torch.device, stream: int) -> Beside:
    made = ctypes.c_void_p()
    with torch.cuda.device(device):
        mark = torch.zeros(1, device=device)
        check(library().cuStreamCreate(ctypes.byref(made), 1), "a stream")
        aside = torch.cuda.ExternalStream(made.value or 0, device=device)  # type: ignore[no-untyped-call]  # torch leaves it untyped
        pool = torch.cuda.graph_pool_handle()
        return Beside(aside, pool, _capture(mark.zero_, aside, pool))


_loops: OrderedDict[tuple[Any, ...], Loop] = OrderedDict()
_loops_lock, _capture_lock = threading.Lock(), threading.Lock()


@contextmanager
def reserved_loop(shape: Shape, device: torch.device) -> Iterator[tuple[Loop, bool]]:
    """A loop for this shape, reserved for this block, and whether to use graphs: from the second time on.

    Inside a capture by the caller it is a new one, which lives as long as that graph's memory, and its launches become
    part of the graph.
    """
    if torch.cuda.is_current_stream_capturing():
        yield Loop(shape, device), False
        return
    loop, seen = _kept(shape, device)
    with loop.lock:
        yield loop, seen


def _kept(shape: Shape, device: torch.device) -> tuple[Loop, bool]:
    key = (shape, device, torch.cuda.current_stream(device).cuda_stream, _precision())
    with _loops_lock:
        seen = key in _loops
        loop = _loops[key] if seen else _loops.setdefault(key, Loop(shape, device))
        _loops.move_to_end(key)
        if len(_loops) > _KEPT:
            _give_up(next(iter(_loops)))
        return loop, seen


def _give_up(key: tuple[Any, ...]) -> None:
    """A graph must not be deleted while it runs.

    Waits for its stream alone: waiting for the whole GPU breaks captures in other threads. While this very stream is
    being captured, the graph stays.
    """
    oldest = _loops[key]
    with torch.cuda.stream(oldest.stream):
        if torch.cuda.is_current_stream_capturing():
            return
    oldest.stream.synchronize()
    del _loops[key]


def _precision() -> tuple[Any, ...]:
    """The settings that products were captured under."""
    matmul = torch.backends.cuda.matmul
    return (
        torch.backends.fp32_precision,  # type: ignore[attr-defined]  # its stub has not got it
        matmul.fp32_precision,
        matmul.allow_bf16_reduced_precision_reduction,
        matmul.allow_fp16_reduced_precision_reduction,
    )
