"""From kernel to layer: padding, dtypes, lengths, second gradients, memory; on a CPU that plays the GPU."""

import contextlib
import ctypes
from collections.abc import Callable
from typing import Any

import pytest
import torch
from emulated_gpu import Launch, emulator
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from statewise.kernels import elman, gradients, gru, lstm, persistent
from statewise.kernels.elman import ElmanWeights
from statewise.kernels.gpu import H200
from statewise.kernels.gru import GRUWeights
from statewise.kernels.lstm import LSTMWeights
from statewise.kernels.persistent import recurrence, stall
from statewise.kernels.persistent.driver import Kernel, Run
from statewise.kernels.persistent.plan import GATES, Cell, Plan

PLANS: dict[str, tuple[Plan, Plan]] = {
    "lstm": (
        Plan("cluster", "lstm", "forward", 128, 4, 128, 1, 8, 8),
        Plan("polled", "lstm", "backward", 128, 1, 32, 1, 4, 4),
    ),
    "gru": (
        Plan("polled", "gru", "forward", 128, 1, 16, 1, 4, 2),
        Plan("cluster", "gru", "backward", 128, 4, 128, 1, 8, 6),
    ),
    "tanh": (
        Plan("cluster", "tanh", "forward", 128, 1, 128, 1, 8, 8),
        Plan("cluster", "tanh", "backward", 128, 1, 128, 1, 8, 8),
    ),
}
PLANS["relu"] = tuple(plan._replace(cell="relu") for plan in PLANS["tanh"])
PRODUCT, EMPTY = gradients.product, torch.empty
BATCH, TIME, INPUT = 3, 4, 5
LENGTHS = [4, 0, 2]


@pytest.fixture(scope="module")
def launch(tmp_path_factory: pytest.TempPathFactory) -> Launch:
    return emulator([plan for pair in PLANS.values() for plan in pair], tmp_path_factory.mktemp("emulated"))


@pytest.fixture(autouse=True)
def _a_gpu(monkeypatch: pytest.MonkeyPatch, launch: Launch) -> None:
    """Everything that asks for a GPU meets the CPU, and its memory comes filled with NaN."""
    fresh = torch.empty

    def poisoned(*shape: int, **options: Any) -> Tensor:
        made = fresh(*shape, **options)
        return made.fill_(float("nan")) if made.is_floating_point() else made

    def run(kernel: Kernel, argument: Run, *, batch: int) -> None:
        assert batch == argument.B
        launch(kernel.plan, argument, 1)

    def loaded(cell: Cell, *_: Any) -> tuple[Kernel, ...]:
        return tuple(Kernel(plan, ctypes.c_void_p(), 1) for plan in PLANS[cell])

    alarm = torch.zeros(1, dtype=torch.int32)
    monkeypatch.setattr(torch, "empty", poisoned)
    monkeypatch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "current_device", lambda: torch.device("cpu"))
    monkeypatch.setattr(recurrence, "address", alarm.data_ptr)
    monkeypatch.setattr(recurrence, "raise_if_stalled", lambda: None)
    monkeypatch.setattr(recurrence, "launch", run)
    monkeypatch.setattr(persistent, "loaded", loaded)
    monkeypatch.setattr(persistent, "gpu_of", lambda device: H200)
    monkeypatch.setattr(persistent, "compute_dtype", lambda weight: torch.bfloat16)
    monkeypatch.setattr(gradients, "product", lambda a, b, dtype: (a.float() @ b.float()).to(dtype))


def op(cell: Cell, form: str) -> Callable[..., tuple[Tensor, ...]]:
    """One form of a cell: x, state, tensors, lengths to outputs."""
    if cell == "lstm":
        run_op = lstm.IMPLEMENTATIONS[form]
        return lambda x, state, weights, lengths: run_op(x, *state, LSTMWeights(*weights), lengths)
    if cell == "gru":
        run_op = gru.IMPLEMENTATIONS[form]
        return lambda x, state, weights, lengths: run_op(x, *state, GRUWeights(*weights), lengths)
    run_op = elman.IMPLEMENTATIONS[form]
    return lambda x, state, weights, lengths: run_op(x, *state, ElmanWeights(*weights, activation=cell), lengths)


def leaves(cell: Cell, width: int, dtype: torch.dtype) -> dict[str, Tensor]:
    """Values that bfloat16 holds exactly, so that only the computation differs."""
    generator = torch.Generator().manual_seed(width)
    rows, parts = GATES[cell] * width, 2 if cell == "lstm" else 1
    shapes = {"x": (BATCH, TIME, INPUT), **{f"state {n}": (BATCH, width) for n in range(parts)}}
    shapes |= {"w": (rows, INPUT), "u": (rows, width), "b": (rows,)} | ({"b_u": (width,)} if cell == "gru" else {})
    return {
        name: (torch.randn(*shape, generator=generator) * (1.0 if name == "x" else width**-0.5))
        .bfloat16()
        .to(dtype)
        .requires_grad_()
        for name, shape in shapes.items()
    }


def results(cell: Cell, form: str, width: int, dtype: torch.dtype, lengths: list[int] | None) -> dict[str, Tensor]:
    given = leaves(cell, width, dtype)
    state = [value for name, value in given.items() if name.startswith("state")]
    weights = [given[name] for name in ("w", "u", "b", "b_u") if name in given]
    ends_B = None if lengths is None else torch.tensor(lengths)
    outputs = op(cell, form)(given["x"], state, weights, ends_B)
    generator = torch.Generator().manual_seed(0)
    total = sum((part * torch.randn(part.shape, generator=generator).to(part)).sum() for part in outputs)
    gradients = torch.autograd.grad(total, list(given.values()))
    found = dict(zip(("y", "last h", "last c"), outputs, strict=False))
    return found | {f"d {name}": gradient for name, gradient in zip(given, gradients, strict=True)}


@pytest.mark.parametrize("cell", PLANS)
@pytest.mark.parametrize(("width", "dtype"), [(128, torch.bfloat16), (100, torch.float32)], ids=["fits", "padded"])
def test_a_layer_is_the_equation(cell: Cell, width: int, dtype: torch.dtype) -> None:
    """At a width that fits and at one that is padded, there with float32 weights, as under autocast; ragged rows."""
    right = results(cell, "naive", width, torch.float64, LENGTHS)
    found = results(cell, "persistent", width, dtype, LENGTHS)
    assert found.keys() == right.keys()
    for name, value in found.items():
        assert value.shape == right[name].shape
        error = (value.double() - right[name]).norm() / right[name].norm()
        assert error < (2e-2 if cell != "relu" else 6e-2), (name, error)  # relu: a unit near 0 may fall on either side
    assert found["y"].dtype == torch.bfloat16
    assert all(found[name].dtype == dtype for name in found if name != "y")
    assert found["y"][1].count_nonzero() == 0
    assert torch.equal(found["last h"][1], leaves(cell, width, dtype)["state 0"][1]), "an empty row keeps its state"


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_gates_computed_again_are_the_gates(cell: Cell) -> None:
    kept = results(cell, "persistent", 100, torch.float32, None)
    with persistent.remember("cell"):
        again = results(cell, "persistent", 100, torch.float32, None)
    for name, value in kept.items():
        assert (again[name].float() - value.float()).norm() / value.float().norm() < 1e-2, name


@pytest.mark.parametrize("cell", ["lstm", "gru", "tanh"])
def test_gradients_of_gradients_are_the_equations(cell: Cell) -> None:
    def second(form: str) -> list[Tensor]:
        given = leaves(cell, 100, torch.float32)
        state = [value for name, value in given.items() if name.startswith("state")]
        weights = [given[name] for name in ("w", "u", "b", "b_u") if name in given]
        y, *_ = op(cell, form)(given["x"], state, weights, None)
        (gradient,) = torch.autograd.grad(y.float().square().sum(), given["u"], create_graph=True)
        return list(torch.autograd.grad(gradient.square().sum(), [given["x"], given["u"]]))

    for found, right in zip(second("persistent"), second("naive"), strict=True):
        assert (found - right).norm() / right.norm() < 2e-2


def test_without_gradients_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[Run] = []
    inner = recurrence.launch
    monkeypatch.setattr(
        recurrence, "launch", lambda kernel, run, *, batch: (runs.append(run), inner(kernel, run, batch=batch))
    )
    with torch.no_grad():
        given = leaves("lstm", 128, torch.bfloat16)
        weights = [given[name] for name in ("w", "u", "b")]
        y, h, _ = op("lstm", "persistent")(given["x"], [given["state 0"], given["state 1"]], weights, None)
    assert runs[0].saved is None
    assert runs[0].cells is None
    torch.testing.assert_close(y[:, -1].float(), h.float(), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("cell", PLANS)
def test_a_refused_launch_goes_to_the_fused_form(cell: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(kernel: Kernel, run: Run, *, batch: int) -> None:
        raise persistent.Unavailable("too many blocks")

    monkeypatch.setattr(recurrence, "launch", refuse)
    monkeypatch.setattr(stall, "_retired", [])
    found = results(cell, "persistent", 100, torch.float32, LENGTHS)
    right = results(cell, "naive", 100, torch.float64, LENGTHS)
    torch.testing.assert_close(found["y"].double(), right["y"], rtol=1e-4, atol=1e-5)
    assert stall.retired() == "too many blocks"


@pytest.mark.parametrize("cell", PLANS)
def test_without_a_state_it_begins_at_zeros(cell: Cell) -> None:
    """First and second gradients too; the last state comes in the dtype of the weights."""

    def found(*, absent: bool) -> list[Tensor]:
        given = leaves(cell, 100, torch.float32)
        names = [name for name in given if name.startswith("state")]
        state = [None if absent else torch.zeros_like(given[name]) for name in names]
        weights = [given[name] for name in ("w", "u", "b", "b_u") if name in given]
        outputs = op(cell, "persistent")(given["x"], state, weights, torch.tensor(LENGTHS))
        assert all(part.dtype == torch.float32 for part in outputs[1:])
        (gradient,) = torch.autograd.grad(outputs[0].float().square().sum(), given["u"], create_graph=True)
        again = torch.autograd.grad(gradient.square().sum(), given["x"], retain_graph=True)
        first = torch.autograd.grad(outputs[1].square().sum(), [given["x"], *weights])
        return [*outputs, gradient, *again, *first]

    for absent, zeros in zip(found(absent=True), found(absent=False), strict=True):
        assert torch.equal(absent, zeros)


@pytest.mark.parametrize("cell", ["lstm", "gru", "tanh"])
@pytest.mark.parametrize("used", [0, 1, 2])
def test_outputs_that_nobody_uses_have_gradients_of_zero(cell: Cell, used: int) -> None:
    def found(form: str, dtype: torch.dtype) -> list[Tensor]:
        given = leaves(cell, 100, dtype)
        state = [value for name, value in given.items() if name.startswith("state")]
        weights = [given[name] for name in ("w", "u", "b", "b_u") if name in given]
        outputs = op(cell, form)(given["x"], state, weights, torch.tensor(LENGTHS))
        total = outputs[min(used, len(outputs) - 1)].to(dtype).square().sum()
        return list(torch.autograd.grad(total, [*given.values()], materialize_grads=True))

    for ours, right in zip(found("persistent", torch.float32), found("naive", torch.float64), strict=True):
        assert (ours.double() - right).norm() <= 3e-2 * right.norm()


def test_the_parts_of_a_state_have_dtypes_and_lives_of_their_own() -> None:
    given = leaves("lstm", 128, torch.bfloat16)
    weights = [given[name] for name in ("w", "u", "b")]
    state = [given["state 0"], given["state 1"]]
    for dtype in (torch.bfloat16, torch.float32):
        y, h, c = op("lstm", "persistent")(given["x"], [state[0], state[1].to(dtype)], weights, None)
        assert (h.dtype, c.dtype) == (torch.bfloat16, dtype)
        before = c.detach().clone()
        h.zero_()
        assert torch.equal(c, before)
        assert y[:, -1].count_nonzero() > 0


class Launches(TorchDispatchMode):
    """Counts what a GPU would be asked for: neither views nor memory that is only set aside."""

    names: list[str]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not func.is_view and "empty" not in str(func) and "unsafe_split" not in str(func):
            self.names.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(("cell", "forward", "backward"), [("tanh", 3, 6), ("gru", 5, 11), ("lstm", 3, 7)])
def test_the_host_asks_for_little_beside_the_kernel(
    cell: Cell, forward: int, backward: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A short sequence takes the kernels less time than a dozen launches: none may come back unnoticed."""
    monkeypatch.setattr(recurrence, "launch", lambda kernel, run, *, batch: None)
    monkeypatch.setattr(gradients, "product", PRODUCT)
    monkeypatch.setattr(torch, "empty", EMPTY)
    given = leaves(cell, 128, torch.bfloat16)
    weights = [given[name] for name in ("w", "u", "b", "b_u") if name in given]
    state = [None] * (2 if cell == "lstm" else 1)
    x_TBI = given["x"].detach().transpose(0, 1).contiguous().transpose(0, 1).requires_grad_()
    with Launches() as ahead:
        ahead.names = []
        y, *_ = op(cell, "persistent")(x_TBI, state, weights, None)
    dy = torch.ones(TIME, BATCH, 128, dtype=torch.bfloat16).transpose(0, 1)
    with Launches() as back:
        back.names = []
        torch.autograd.grad(y, [x_TBI, *weights], dy)
    marks = [plan.marked for plan in PLANS[cell]]
    assert len(ahead.names) <= forward, ahead.names
    assert len(back.names) <= backward, back.names
    assert [sum("fill_" in name for name in names) for names in (ahead.names, back.names)] == marks
