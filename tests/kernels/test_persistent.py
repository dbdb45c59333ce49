"""The persistent kernels: which plan takes which shape, when they step aside and why, how they are compiled."""

import ctypes
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from statewise.kernels import persistent
from statewise.kernels.choice import Choice, choose, force
from statewise.kernels.persistent import alarm, compiler, table
from statewise.kernels.persistent.plan import Cell, Plan
from statewise.mixers import GRU, LSTM, Elman
from statewise.specs import UserError

# Clusters of 1, 2, 4, 8 and 16 blocks that an H200 holds at one block a multiprocessor, as its driver answers.
ROOM = {1: 132, 2: 66, 4: 30, 8: 15, 16: 7}
ENTRIES = [(*key, batch, row) for key, rows in table._TABLE.items() for batch, row in rows.items()]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: "-".join(map(str, entry[:4])))
def test_every_plan_of_the_table_fits(entry: tuple[Cell, table.Way, int, int, table.Row]) -> None:
    cell, way, width, batch, row = entry
    plan = table._plan(cell, way, width, row)
    assert plan.valid
    across, down = plan.grid(batch)
    assert down * plan.rows >= batch or plan.kind == "cluster"
    if plan.cooperative:
        assert across * down <= ROOM[plan.blocks] * plan.blocks
    opposite: table.Way = "backward" if way == "forward" else "forward"
    assert batch in table._TABLE[cell, opposite, width], "a shape needs both ways"


def test_a_shape_takes_the_next_one_in_the_table() -> None:
    exact = table.plans("lstm", width=256, batch=64)
    assert exact is not None
    assert table.plans("lstm", width=200, batch=17) == exact
    assert table.plans("lstm", width=256, batch=16) != table.plans("lstm", width=257, batch=16)
    assert table.plans("lstm", width=4096, batch=1) is None
    assert table.plans("lstm", width=256, batch=100_000) is None
    tanh, relu = table.plans("tanh", width=300, batch=1), table.plans("relu", width=300, batch=1)
    assert tanh is not None
    assert relu == tuple(plan._replace(cell="relu") for plan in tanh)


@pytest.mark.parametrize(
    "plan",
    [
        Plan("cluster", "lstm", "forward", 128, 3, 128, 1, 8, 8),  # 128 units on 3 blocks
        Plan("cluster", "lstm", "forward", 128, 4, 128, 1, 8, 9),  # more steps kept than there are
        Plan("polled", "gru", "forward", 256, 1, 8, 1, 8, 2),  # 24 matrix rows are no tiles of 16
        Plan("polled", "lstm", "backward", 2048, 2, 32, 8, 8, 4),  # more shared memory than a block has
        Plan("wide", "lstm", "backward", 1024, 4, 128, 11, 12, 30, 4),  # kept, but not in chunks of four
    ],
    ids=lambda plan: plan.name,
)
def test_what_does_not_fit_is_known_before_it_is_compiled(plan: Plan) -> None:
    assert not plan.valid


def test_on_a_cpu_there_are_none() -> None:
    for mixer in (LSTM(8), GRU(8), Elman(8)):
        assert mixer.choice().implementation != "persistent"
        with force("persistent"), pytest.raises(UserError, match="none on this device"):
            mixer(torch.zeros(1, 2, 8))


def test_until_proven_on_a_gpu_they_run_where_asked_for_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("statewise.kernels.persistent.obstacle", lambda *args, **kwargs: None)
    weight: Any = SimpleNamespace(device=torch.device("cuda"), shape=(4, 1))  # all that is looked at
    assert persistent.with_persistent(["fused"], "lstm", weight, batch=1) == (["fused", "persistent"], {})
    monkeypatch.setenv("STATEWISE_UNPROVEN", "1")
    assert persistent.with_persistent(["fused"], "lstm", weight, batch=1) == (["persistent", "fused"], {})


def test_the_choice_says_why_not() -> None:
    chosen = choose("LSTM", obstacles=[], absent={"persistent": "this GPU is too old"})
    assert chosen.implementation == "fused"
    assert chosen.reason.endswith("(not persistent: this GPU is too old)")
    with pytest.raises(UserError, match="asks for the persistent LSTM, but this GPU is too old"):
        choose("LSTM", obstacles=[], wish="persistent", absent={"persistent": "this GPU is too old"})
    assert choose("LSTM", obstacles=[], fast=["persistent", "fused"]).implementation == "persistent"
    asked = choose("LSTM", obstacles=[], wish="fused", fast=["persistent", "fused"])
    assert asked == Choice("fused", "asked for by kernel=")


def test_what_stands_in_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    ask = persistent._obstacle.__wrapped__
    half = torch.bfloat16
    assert "float32" in ask("lstm", 256, 16, torch.float32, 0)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    assert "compute capability 9.0, this GPU has 8.0" in ask("lstm", 256, 16, half, 0)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    assert "cuDNN" in ask("lstm", 4096, 16, half, 0)

    def refuse(plan: Plan, *, half: bool, device: int) -> None:
        raise compiler.Unavailable("NVRTC is not here")

    monkeypatch.setattr(persistent, "kernel", refuse)
    assert ask("lstm", 256, 16, half, 0) == "NVRTC is not here"
    weight = torch.zeros(4, 1)
    assert persistent.obstacle("lstm", width=1, batch=1, weight=weight) == "it needs a GPU"


def test_a_stalled_kernel_is_an_error_once_and_then_retired(monkeypatch: pytest.MonkeyPatch) -> None:
    flag = ctypes.c_int(0)
    monkeypatch.setattr(alarm, "_value", lambda: flag)
    monkeypatch.setattr(alarm, "_retired", [])
    alarm.raise_if_stalled()
    flag.value = 1
    with pytest.raises(persistent.KernelStalled, match="STATEWISE_KERNEL=fused"):
        alarm.raise_if_stalled()
    alarm.raise_if_stalled()
    assert alarm.retired() == "a kernel stalled earlier in this process"


PLAN = Plan("cluster", "tanh", "forward", 128, 1, 128, 1, 8, 8)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[list[str]]:
    """A compiler that notes what it was asked, and a cache of its own."""
    asked: list[list[str]] = []

    def compile_(text: str, options: list[str]) -> bytes:
        assert PLAN.name in text
        asked.append(options)
        return b"machine code"

    monkeypatch.setenv("STATEWISE_CACHE", str(tmp_path))
    monkeypatch.setattr(compiler, "compile_source", compile_)
    monkeypatch.setattr(compiler, "version", lambda: "13.0")
    return asked


def test_a_kernel_is_compiled_once(compiled: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):
        assert compiler.machine_code(PLAN, half=False) == b"machine code"
    assert len(compiled) == 1
    compiler.machine_code(PLAN, half=True)
    assert len(compiled) == 2, "another dtype is another kernel"
    monkeypatch.setattr(compiler, "version", lambda: "13.1")
    compiler.machine_code(PLAN, half=False)
    assert len(compiled) == 3, "another compiler makes another kernel"


def test_a_damaged_cache_is_not_believed(compiled: list[list[str]], tmp_path: Path) -> None:
    compiler.machine_code(PLAN, half=False)
    (kept,) = (tmp_path / "kernels").iterdir()
    for damage in (kept.read_bytes()[:-1], kept.read_bytes()[:-1] + b"?", b""):
        kept.write_bytes(damage)
        assert compiler.machine_code(PLAN, half=False) == b"machine code"
    assert len(compiled) == 4


def test_a_cache_that_cannot_be_written_costs_only_time(compiled: list[list[str]], tmp_path: Path) -> None:
    (tmp_path / "kernels").write_text("a file where a folder should be")
    for _ in range(2):
        assert compiler.machine_code(PLAN, half=False) == b"machine code"
    assert len(compiled) == 2


def nvrtc_or_skip() -> None:
    try:
        compiler.version()
    except compiler.Unavailable as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize(
    "plan",
    [
        Plan("cluster", "lstm", "forward", 128, 4, 128, 1, 8, 8),
        Plan("cluster", "gru", "backward", 128, 4, 128, 1, 8, 6),
        Plan("polled", "gru", "backward", 512, 2, 64, 1, 6, 8),
        Plan("wide", "relu", "forward", 512, 1, 128, 2, 12, 24, 4),
    ],
    ids=lambda plan: plan.name,
)
@pytest.mark.parametrize("half", [False, True], ids=["bfloat16", "float16"])
def test_nvrtc_takes_every_kind(plan: Plan, half: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvrtc_or_skip()
    monkeypatch.setenv("STATEWISE_CACHE", str(tmp_path))
    assert compiler.machine_code(plan, half=half).startswith(b"\x7fELF")


@pytest.mark.slow
def test_nvrtc_takes_the_whole_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvrtc_or_skip()
    monkeypatch.setenv("STATEWISE_CACHE", str(tmp_path))
    for cell, way, width, _, row in ENTRIES:
        for half in (False, True):
            assert compiler.machine_code(table._plan(cell, way, width, row), half=half)


def test_an_error_of_the_compiler_is_shown() -> None:
    nvrtc_or_skip()
    with pytest.raises(compiler.Unavailable, match=r"refused the kernel.*undefined_name"):
        compiler.compile_source("__device__ int f() { return undefined_name; }", ["--gpu-architecture=sm_90a"])


def on_hopper(test: Callable[..., None]) -> Callable[..., None]:
    here = torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)
    test = pytest.mark.filterwarnings("ignore:RNN module weights are not part of single contiguous chunk")(test)
    return pytest.mark.gpu(pytest.mark.skipif(not here, reason="no Hopper GPU here")(test))


CELLS = {"lstm": LSTM, "gru": GRU, "elman": Elman}


def trained(mixer: LSTM | GRU | Elman, x_BTI: Tensor, lengths_B: Tensor | None, wish: str) -> list[Tensor]:
    """Outputs, last state and the gradients of the input and all parameters."""
    leaf = x_BTI.clone().requires_grad_()
    with force(wish):  # type: ignore[arg-type]  # a wish in words
        y_BTD, state = mixer(leaf, None, lengths_B)
    outputs = [y_BTD, *state]
    total = sum(
        (part.float() * torch.linspace(-1, 1, part.numel(), device="cuda").view_as(part)).sum() for part in outputs
    )
    return [*outputs, *torch.autograd.grad(total, [leaf, *mixer.parameters()])]


@on_hopper
@pytest.mark.parametrize("rows", ["full", "ragged"])
@pytest.mark.parametrize("width", [128, 200, 512, 1024])
@pytest.mark.parametrize("cell", CELLS)
def test_on_a_gpu_it_is_the_equation(cell: str, width: int, rows: str) -> None:
    mixer = CELLS[cell](width, input_width=24).cuda().bfloat16()
    x_BTI = torch.randn(5, 9, 24, device="cuda", dtype=torch.bfloat16)
    lengths_B = torch.tensor([9, 0, 1, 4, 8], device="cuda") if rows == "ragged" else None
    found = trained(mixer, x_BTI, lengths_B, "persistent")
    exact = CELLS[cell](width, input_width=24).cuda().double()
    exact.load_state_dict({name: value.double() for name, value in mixer.state_dict().items()})
    right = trained(exact, x_BTI.double(), lengths_B, "naive")
    persistent.raise_if_stalled(wait=True)
    for a, b in zip(found, right, strict=True):
        assert (a.double() - b).norm() <= 2e-2 * b.norm()


@on_hopper
@pytest.mark.parametrize("cell", CELLS)
def test_autocast_a_graph_and_a_second_time(cell: str) -> None:
    """Weights in float32 under autocast; the same bits again; the same bits replayed from a CUDA graph."""
    mixer = CELLS[cell](256).cuda()
    x_BTI = torch.randn(4, 33, 256, device="cuda")

    def run() -> list[Tensor]:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return trained(mixer, x_BTI, None, "persistent")

    first, second = run(), run()
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = run()
    graph.replay()
    persistent.raise_if_stalled(wait=True)
    assert all(torch.equal(a, b) for a, b in zip(first, captured, strict=True))
