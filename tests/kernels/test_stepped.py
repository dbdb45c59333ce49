"""Recurrences a step at a time: kernels, loops and layers, on a CPU that plays the GPU; choice and compilation."""

import contextlib
import threading
from collections.abc import Callable
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from emulated_steps import Emulated, emulator
from torch import Tensor

from statewise.kernels import elman, gradients, gru, lstm, stepped
from statewise.kernels.elman import ElmanWeights
from statewise.kernels.gru import GRUWeights
from statewise.kernels.lstm import LSTMNorm, LSTMWeights
from statewise.kernels.persistent import compiler
from statewise.kernels.persistent.plan import GATES
from statewise.kernels.stepped import loop, program, recurrence
from statewise.kernels.stepped.program import Program, Run, Shape

CELLS = ("tanh", "relu", "gru", "lstm", "normed lstm")
CAPTURED = loop.Loop._captured
BATCH, TIME, INPUT = 9, 7, 5
LENGTHS = [7, 0, 3, 7, 1, 2, 6, 7, 5]
# A width for each number of neighbours a thread can take; the last is more than a row's block has threads.
WIDTHS = {torch.float32: (17, 18, 72), torch.bfloat16: (20,), torch.float16: (20,)}


# float16 differs from bfloat16 in how it is stored alone.
CASES = [
    (cell, dtype, width)
    for cell in CELLS
    for dtype, widths in WIDTHS.items()
    for width in widths
    if dtype != torch.float16 or cell in ("gru", "normed lstm")
]


def shapes() -> list[Shape]:
    made = [
        Shape.holding(BATCH, cell.split()[-1], direction, width, dtype, normed=cell.startswith("normed"))
        for cell, dtype, width in CASES
        for direction in ("forward", "backward")
    ]
    return made + [shape._replace(by_unit=True) for shape in made if shape.direction == "backward" and not shape.normed]


def some_stream(number: int) -> SimpleNamespace:
    return SimpleNamespace(cuda_stream=number, synchronize=lambda: None)


def for_small_tensors(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(program, "_WIDE_FROM", {4: 1, 2: 1})
    patch.setattr(program, "_ROW_THREADS", 64)


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Emulated:
    with pytest.MonkeyPatch.context() as patch:
        for_small_tensors(patch)
        programs = list(dict.fromkeys(Program.of(shape) for shape in shapes()))
    assert {made.neighbours for made in programs} == {1, 2, 4}
    return emulator(programs, tmp_path_factory.mktemp("steps"))


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, emulated: Emulated) -> None:
    """Everything that asks for a GPU meets the CPU, and its memory comes filled with NaN."""
    fresh, fresh_like = torch.empty, Tensor.new_empty

    def poisoned(*shape: int, **options: Any) -> Tensor:
        made = fresh(*shape, **options)
        return made.fill_(float("nan")) if made.is_floating_point() else made

    monkeypatch.setattr(torch, "empty", poisoned)
    monkeypatch.setattr(Tensor, "new_empty", lambda self, *shape: fresh_like(self, *shape).fill_(float("nan")))
    monkeypatch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "current_device", lambda: None)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: some_stream(0))
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())
    for_small_tensors(monkeypatch)
    monkeypatch.setattr(loop, "load", emulated.load)
    monkeypatch.setattr(loop, "launch", emulated.launch)
    monkeypatch.setattr(loop, "_loops", type(loop._loops)())
    monkeypatch.setattr(loop, "GRAPH_STEPS", (4, 2))
    monkeypatch.setattr(loop.Loop, "_captured", lambda self, count: lambda: self._piece(count))
    monkeypatch.setattr(gradients, "product", lambda a, b, dtype: (a.float() @ b.float()).to(dtype))


def op(cell: str, form: str) -> Callable[..., tuple[Tensor, ...]]:
    """One form of a cell: x, state, tensors, lengths to outputs."""
    if cell.endswith("lstm"):
        run_op = lstm.IMPLEMENTATIONS[form]

        def run(x: Tensor, state: list[Tensor], weights: list[Tensor], lengths: Tensor | None) -> tuple[Tensor, ...]:
            norm = LSTMNorm(*weights[3:]) if cell.startswith("normed") else None
            return run_op(x, *state, LSTMWeights(*weights[:3], norm=norm), lengths)

        return run
    if cell == "gru":
        run_op = gru.IMPLEMENTATIONS[form]
        return lambda x, state, weights, lengths: run_op(x, *state, GRUWeights(*weights), lengths)
    run_op = elman.IMPLEMENTATIONS[form]
    return lambda x, state, weights, lengths: run_op(x, *state, ElmanWeights(*weights, activation=cell), lengths)


def leaves(cell: str, width: int, given: torch.dtype, dtype: torch.dtype) -> dict[str, Tensor]:
    """Values that the dtype of the computation holds exactly, so that only the computation differs."""
    generator = torch.Generator().manual_seed(width)
    rows, parts = GATES[cell.split()[-1]] * width, 2 if cell.endswith("lstm") else 1
    extents = {"x": (BATCH, TIME, INPUT), **{f"state {n}": (BATCH, width) for n in range(parts)}}
    extents |= {"w": (rows, INPUT), "u": (rows, width), "b": (rows,)} | ({"b_u": (width,)} if cell == "gru" else {})
    if cell.startswith("normed"):
        extents |= {"input gain": (rows,), "recurrent gain": (rows,), "cell gain": (width,), "cell bias": (width,)}
    return {
        name: (torch.randn(*extent, generator=generator) * (1.0 if name == "x" or "gain" in name else width**-0.5))
        .to(given)
        .to(dtype)
        .requires_grad_()
        for name, extent in extents.items()
    }


def call(cell: str, form: str, given: dict[str, Tensor], lengths: list[int] | None) -> tuple[Tensor, ...]:
    state = [value for name, value in given.items() if name.startswith("state")]
    weights = [value for name, value in given.items() if name != "x" and not name.startswith("state")]
    return op(cell, form)(given["x"], state, weights, None if lengths is None else torch.tensor(lengths))


def results(
    cell: str, form: str, width: int, given: torch.dtype, dtype: torch.dtype, lengths: list[int] | None
) -> dict[str, Tensor]:
    found = leaves(cell, width, given, dtype)
    outputs = call(cell, form, found, lengths)
    generator = torch.Generator().manual_seed(0)
    total = sum((part * torch.randn(part.shape, generator=generator).to(part)).sum() for part in outputs)
    gradients = torch.autograd.grad(total, list(found.values()))
    named = dict(zip(("y", "last h", "last c"), outputs, strict=False))
    return named | {f"d {name}": gradient for name, gradient in zip(found, gradients, strict=True)}


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(("cell", "dtype", "width"), CASES, ids=lambda value: str(value).removeprefix("torch."))
def test_a_layer_is_the_equation(cell: str, dtype: torch.dtype, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ragged rows, an empty one among them; float32 weights with 16-bit products, as under autocast."""
    monkeypatch.setattr(stepped, "compute_dtype", lambda weight: dtype)
    monkeypatch.setattr(loop, "_TURNED_FROM", BATCH if width == 17 else 2 * BATCH)
    right = results(cell, "naive", width, dtype, torch.float64, LENGTHS)
    found = results(cell, "stepped", width, dtype, torch.float32, LENGTHS)
    assert found.keys() == right.keys()
    limit = {torch.float32: 3e-6, torch.float16: 4e-3, torch.bfloat16: 2e-2 if cell != "relu" else 6e-2}[dtype]
    for name, value in found.items():
        assert value.shape == right[name].shape
        error = (value.double() - right[name]).norm() / right[name].norm()
        assert error < limit, (name, error)
    assert found["y"].dtype == dtype
    assert all(found[name].dtype == torch.float32 for name in found if name != "y")
    assert found["y"][1].count_nonzero() == 0
    state = leaves(cell, width, dtype, torch.float32)["state 0"]
    assert torch.equal(found["last h"][1], state[1]), "an empty row keeps its state"


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("width", [17, 72])
@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_backward_reads_what_a_forward_in_one_piece_has_kept(
    cell: str, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same numbers lie in another order, so that the gradients are the same bits."""
    monkeypatch.setattr(stepped, "compute_dtype", lambda weight: torch.float32)
    expected = results(cell, "stepped", width, torch.float32, torch.float32, LENGTHS)
    pieces = []

    def in_one_piece(kernel: Any, work: Any, tensors: Any) -> Any:
        pieces.append(kernel)
        outputs, kept = recurrence._forward(work._replace(whole=None), tensors)
        parts = kept.gates_NG.view(TIME, BATCH, GATES[cell], width).unbind(2)
        by_unit = torch.stack([*parts, kept.inner] if cell == "gru" else parts, dim=-1)
        return outputs, kept._replace(gates_NG=by_unit, inner=None)

    monkeypatch.setattr(stepped, "forward_kernel", lambda cell, *, batch, weight: "a kernel")
    monkeypatch.setattr(recurrence, "raise_if_stalled", lambda: None)
    monkeypatch.setattr(recurrence, "_in_one_piece", in_one_piece)
    found = results(cell, "stepped", width, torch.float32, torch.float32, LENGTHS)
    assert pieces == ["a kernel"]
    assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.usefixtures("gpu")
def test_a_forward_in_one_piece_that_is_refused_goes_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stepped, "compute_dtype", lambda weight: torch.float32)
    expected = results("lstm", "stepped", 17, torch.float32, torch.float32, LENGTHS)
    reasons: list[str] = []

    def refused(*_: Any) -> Any:
        raise stepped.Unavailable("no room")

    monkeypatch.setattr(stepped, "forward_kernel", lambda cell, *, batch, weight: "a kernel")
    monkeypatch.setattr(stepped, "retire", reasons.append)
    monkeypatch.setattr(recurrence, "raise_if_stalled", lambda: None)
    monkeypatch.setattr(recurrence, "_in_one_piece", refused)
    found = results("lstm", "stepped", 17, torch.float32, torch.float32, LENGTHS)
    assert reasons == ["no room"]
    assert stepped.retired() is None, "this form goes on without it"
    assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("cell", CELLS)
def test_graphs_change_nothing(cell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first loop of a shape runs step by step, later ones in pieces; other lengths and weights come in between."""
    monkeypatch.setattr(stepped, "compute_dtype", lambda weight: torch.float32)
    pieces: list[int] = []
    monkeypatch.setattr(loop.Loop, "_captured", lambda self, count: lambda: (pieces.append(count), self._piece(count)))
    first = results(cell, "stepped", 17, torch.float32, torch.float32, None)
    assert pieces == []
    shorter = {name: value.detach() for name, value in leaves(cell, 17, torch.float32, torch.float32).items()}
    call(cell, "stepped", shorter | {"x": -shorter["x"][:, :5], "u": -shorter["u"]}, None)
    assert pieces == [4], "and one step by itself"
    second = results(cell, "stepped", 17, torch.float32, torch.float32, None)
    assert pieces == [4] + 2 * [4, 2]
    assert all(torch.equal(first[name], second[name]) for name in first)


class Refused:
    """A CUDA graph that cannot be."""

    def capture_begin(self, **_: Any) -> None:
        raise RuntimeError("somebody else captures here")


@pytest.mark.usefixtures("gpu")
def test_without_graphs_it_goes_step_by_step_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stepped, "compute_dtype", lambda weight: torch.float32)
    monkeypatch.setattr(loop.Loop, "_captured", CAPTURED)
    beside = SimpleNamespace(stream=SimpleNamespace(wait_stream=lambda other: None, device=None), pool=None)
    monkeypatch.setattr(loop, "_beside", cache(lambda device, stream: beside))
    monkeypatch.setattr(loop, "capturing", lambda device, pool: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Refused)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())
    first = results("lstm", "stepped", 17, torch.float32, torch.float32, LENGTHS)
    with pytest.warns(RuntimeWarning, match="without CUDA graphs: somebody else captures here"):
        second = results("lstm", "stepped", 17, torch.float32, torch.float32, LENGTHS)
    third = results("lstm", "stepped", 17, torch.float32, torch.float32, LENGTHS)
    assert all(torch.equal(first[name], again[name]) for name in first for again in (second, third))


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("cell", CELLS)
def test_without_gradients_outputs_are_the_same_and_nothing_is_kept(cell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stepped, "compute_dtype", lambda weight: torch.bfloat16)
    runs: list[Run] = []
    run_loop = loop.Loop.run
    monkeypatch.setattr(
        loop.Loop, "run", lambda self, run, *, graphs: (runs.append(run), run_loop(self, run, graphs=graphs))
    )
    given = leaves(cell, 20, torch.bfloat16, torch.float32)
    kept = call(cell, "stepped", given, LENGTHS)
    with torch.no_grad():
        free = call(cell, "stepped", given, LENGTHS)
    assert all(torch.equal(a, b) for a, b in zip(kept, free, strict=True))
    assert all(getattr(runs[1], name) is None for name in ("inner", "cells", "spread"))


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("cell", CELLS)
def test_gradients_again_and_gradients_of_gradients(cell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stepped, "compute_dtype", lambda weight: torch.float32)
    given = leaves(cell, 17, torch.float32, torch.float32)
    y, *_ = call(cell, "stepped", given, LENGTHS)
    once, twice = (torch.autograd.grad(y.sum(), given["u"], retain_graph=True)[0] for _ in range(2))
    assert torch.equal(once, twice), "backward leaves what it reads as it was"

    def second(form: str) -> list[Tensor]:
        y, *_ = call(cell, form, given, LENGTHS)
        (gradient,) = torch.autograd.grad(y.square().sum(), given["u"], create_graph=True)
        return list(torch.autograd.grad(gradient.square().sum(), [given["x"], given["u"]]))

    for found, right in zip(second("stepped"), second("naive"), strict=True):
        assert (found - right).norm() / right.norm() < 1e-5


@pytest.mark.usefixtures("gpu")
def test_several_numbers_are_never_read_from_an_odd_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stepped, "compute_dtype", lambda weight: torch.float32)
    runs: list[Run] = []
    run_loop = loop.Loop.run
    monkeypatch.setattr(
        loop.Loop, "run", lambda self, run, *, graphs: (runs.append(run), run_loop(self, run, graphs=graphs))
    )
    given = leaves("lstm", 72, torch.float32, torch.float32)
    odd = torch.randn(BATCH * 72 + 1)[1:].view(BATCH, 72).requires_grad_()
    y, *_ = call("lstm", "stepped", given | {"state 1": odd}, None)
    dy = torch.randn(y.numel() + 1)[1:].view(TIME, BATCH, 72).transpose(0, 1)
    torch.autograd.grad(y, odd, dy)
    assert len(runs) == 2
    assert all(getattr(run, name) % 16 == 0 for run in runs for name in ("gates", "y", "h", "c", "cells"))
    assert runs[1].dy % 16 == runs[1].c0 % 16 == 0


@pytest.mark.usefixtures("gpu")
def test_loops_are_kept_by_shape_stream_and_precision_and_the_oldest_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "_KEPT", 2)

    def made(shape: Shape, device: torch.device) -> SimpleNamespace:
        return SimpleNamespace(lock=threading.Lock(), stream=torch.cuda.current_stream(device))

    monkeypatch.setattr(loop, "Loop", made)
    shape, cpu = Shape("tanh", "forward", 1, 8, torch.float32), torch.device("cpu")

    def seen(some: Shape) -> bool:
        with loop.reserved_loop(some, cpu) as (_, again):
            return again

    assert [seen(shape), seen(shape), seen(shape._replace(rows=2)), seen(shape)] == [False, True, False, True]
    assert [seen(shape._replace(rows=3)), seen(shape._replace(rows=2))] == [False, False]
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: some_stream(1))
    assert not seen(shape), "another stream may run at the same time"
    before, torch.backends.cuda.matmul.fp32_precision = torch.backends.cuda.matmul.fp32_precision, "tf32"
    try:
        assert not seen(shape), "a graph holds the products of another precision"
    finally:
        torch.backends.cuda.matmul.fp32_precision = before
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert not seen(shape), "somebody's graph may be replayed whenever he likes"
    assert len(loop._loops) == 2


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("cell", CELLS)
def test_a_refused_launch_goes_to_another_form(cell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **options: Any) -> None:
        raise stepped.Unavailable("the driver says no")

    monkeypatch.setattr(loop, "launch", refuse)
    monkeypatch.setattr(stepped, "_retired", [])
    monkeypatch.setattr(stepped, "compute_dtype", lambda weight: torch.float32)
    found = results(cell, "stepped", 17, torch.float32, torch.float32, LENGTHS)
    right = results(cell, "naive", 17, torch.float32, torch.float64, LENGTHS)
    torch.testing.assert_close(found["y"].double(), right["y"], rtol=1e-4, atol=1e-5)
    weight: Any = SimpleNamespace(device=torch.device("cuda"))
    assert stepped.obstacle("lstm", width=8, batch=1, weight=weight) == "the driver says no"


@pytest.mark.parametrize("target", ["sm_75", "sm_80", "sm_90", "sm_120"])
def test_nvrtc_takes_every_program(target: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        compiler.version()
    except compiler.Unavailable as reason:
        pytest.skip(str(reason))
    monkeypatch.setenv("STATEWISE_CACHE", str(tmp_path))
    for name, dtype, direction in zip(CELLS, [*WIDTHS] * 2, ("forward", "backward") * 3, strict=False):
        shape = Shape(name.split()[-1], direction, 64, 2048, dtype, name.startswith("normed"))
        assert program.machine_code(Program.of(shape), target=target).startswith(b"\x7fELF")
