"""The persistent kernels: which plan takes which shape, when they step aside and why, how they are compiled."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from statewise.kernels import persistent
from statewise.kernels.choice import Choice, choose, force
from statewise.kernels.gpu import H200, KNOWN, Gpu
from statewise.kernels.persistent import compiler, driver, stall, table
from statewise.kernels.persistent.plan import Cell, Direction, Plan
from statewise.mixers import GRU, LSTM, Elman
from statewise.specs import UserError

ENTRIES = [(*key, batch, row) for key, rows in table.FASTEST.items() for batch, row in rows.items()]


def test_a_plan_one_way_alone_serves_that_way_alone() -> None:
    for cell in ("lstm", "gru"):
        assert table.plans(cell, width=2048, batch=64, gpu=H200) is None
        plan = table.forward_alone(cell, width=2048, batch=40, gpu=H200)
        assert plan is not None
        assert plan.direction == "forward"
        assert table.forward_alone(cell, width=2048, batch=16, gpu=H200) is None, "both ways have plans"
        assert table.forward_alone(cell, width=2048, batch=65, gpu=H200) is None
        assert table.forward_alone(cell, width=2000, batch=64, gpu=H200) is None, "what it keeps would be padded"
        assert table.forward_alone(cell, width=2048, batch=64, gpu=H200._replace(multiprocessors=100)) is None


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: "-".join(map(str, entry[:4])))
def test_every_plan_of_the_table_fits(entry: tuple[Cell, Direction, int, int, table.Row]) -> None:
    cell, direction, width, batch, row = entry
    plan = table._plan(cell, direction, width, row)
    assert plan.fits(H200)
    across, down = plan.grid(batch)
    assert down * plan.rows * plan.turns >= batch or plan.kind == "cluster"
    if plan.cooperative:
        assert across * down <= H200.clusters[plan.blocks] * plan.blocks
    if direction == "backward":
        assert batch in table.FASTEST[cell, "forward", width], "nobody else keeps what it reads"


def test_a_shape_takes_the_next_one_in_the_table() -> None:
    exact = table.plans("lstm", width=256, batch=64, gpu=H200)
    assert exact is not None
    assert table.plans("lstm", width=200, batch=17, gpu=H200) == exact
    assert table.measured("lstm", width=256, batch=16) != table.measured("lstm", width=257, batch=16)
    assert table.plans("lstm", width=4096, batch=1, gpu=H200) is None
    assert table.plans("lstm", width=256, batch=100_000, gpu=H200) is None
    tanh, relu = table.measured("tanh", width=300, batch=1), table.measured("relu", width=300, batch=1)
    assert tanh is not None
    assert relu == tuple(plan._replace(cell="relu") for plan in tanh)


@pytest.mark.parametrize(
    "plan",
    [
        Plan("cluster", "lstm", "forward", 128, 3, 128, 1, 8, 8),  # 128 units on 3 blocks
        Plan("cluster", "lstm", "forward", 128, 4, 128, 1, 8, 9),  # more steps kept than there are
        Plan("polled", "gru", "forward", 256, 1, 8, 1, 8, 2),  # 24 matrix rows are no tiles of 16
        Plan("polled", "lstm", "backward", 2048, 2, 32, 8, 8, 4),  # more shared memory than a block has
        Plan("wide", "lstm", "backward", 1024, 4, 128, 4, 12, 30, 4),  # kept, but not in chunks of four
    ],
    ids=lambda plan: plan.name,
)
def test_what_does_not_fit_is_known_before_it_is_compiled(plan: Plan) -> None:
    assert not plan.fits(H200)


def test_on_a_cpu_there_are_none() -> None:
    for mixer in (LSTM(8), GRU(8), Elman(8)):
        assert mixer.choice().implementation != "persistent"
        with force("persistent"), pytest.raises(UserError, match="none on this device"):
            mixer(torch.zeros(1, 2, 8))


def test_they_run_by_themselves_where_that_was_measured_or_is_safe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("statewise.kernels.persistent.obstacle", lambda *args, **kwargs: None)

    def order(gpu: Gpu, dtype: torch.dtype) -> list[str]:
        weight: Any = SimpleNamespace(device=torch.device("cuda"), shape=(4, 1), dtype=dtype)  # all that is looked at
        monkeypatch.setattr(persistent, "gpu_of", lambda device: gpu)
        found, absent = persistent.with_persistent(["fused"], "lstm", weight, batch=1)
        assert absent == {}
        return [*found]

    first, last = ["persistent", "fused"], ["fused", "persistent"]
    assert order(H200, torch.float16) == first
    assert order(KNOWN["8.0"], torch.bfloat16) == first
    assert order(KNOWN["8.0"], torch.float16) == last
    monkeypatch.setenv("STATEWISE_UNPROVEN", "1")
    assert order(KNOWN["8.0"], torch.float16) == first


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
    assert "float32" in ask("lstm", 256, 16, torch.float32, 0, H200)
    turing = Gpu((7, 5), 68, 64 * 1024)
    assert ask("lstm", 256, 16, half, 0, turing) == "it needs compute capability 8.0, this GPU has 7.5"
    assert ask("lstm", 4096, 16, half, 0, H200) == "it has no plan at width 4096 and batch 16"
    assert "on a GPU of 8.6 it is not sure to be ahead of cuDNN" in ask("lstm", 2048, 256, half, 0, KNOWN["8.6"])

    def refuse(plan: Plan, *, half: bool, device: int) -> None:
        raise compiler.Unavailable("NVRTC is not here")

    monkeypatch.setattr(persistent, "kernel", refuse)
    assert ask("lstm", 256, 16, half, 0, H200) == "NVRTC is not here"
    weight = torch.zeros(4, 1)
    assert persistent.obstacle("lstm", width=1, batch=1, weight=weight) == "it needs a GPU"


def test_a_stalled_kernel_is_an_error_once_and_then_retired(monkeypatch: pytest.MonkeyPatch) -> None:
    flag = ctypes.c_int(0)
    monkeypatch.setattr(stall, "_value", lambda: flag)
    monkeypatch.setattr(stall, "_retired", [])
    stall.raise_if_stalled()
    flag.value = 1
    with pytest.raises(persistent.KernelStalled, match="STATEWISE_KERNEL=fused"):
        stall.raise_if_stalled()
    stall.raise_if_stalled()
    assert stall.retired() == "a kernel stalled earlier in this process"


PLAN = Plan("cluster", "tanh", "forward", 128, 1, 128, 1, 8, 8)


def test_a_launch_goes_to_the_stream_of_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the driver reads is made once for a grid and a stream, and nobody writes into it."""
    launched: list[tuple[int, list[int]]] = []

    def accept(launch: Any, *_: Any) -> int:
        launched.append((launch._obj.stream, launch._obj.grid[:]))
        return 0

    streams = iter((5, 6, 5))
    monkeypatch.setattr(driver, "library", lambda: SimpleNamespace(cuLaunchKernelEx=accept))
    monkeypatch.setattr(driver, "current_stream", lambda: next(streams))
    kernel = driver.Kernel(PLAN, ctypes.c_void_p(1), 8)
    for batch in (1, 1, 17):
        driver.launch(kernel, driver.Run(B=batch), batch=batch)
    assert launched == [(5, [1, 1, 1]), (6, [1, 1, 1]), (5, [3, 1, 1])]


@pytest.mark.parametrize(("current", "autocast", "moved"), [(1, False, False), (0, False, True), (1, True, True)])
def test_device_and_autocast_are_changed_where_they_differ(
    current: int, autocast: bool, moved: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered: list[object] = []

    @contextmanager
    def enter(*what: object, **_: object) -> Iterator[None]:
        entered.append(what[0])
        yield
        entered.append("left")

    monkeypatch.setattr(torch.cuda, "current_device", lambda: current)
    monkeypatch.setattr(torch.cuda, "device", enter)
    monkeypatch.setattr(torch, "autocast", enter)
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda kind: autocast)
    here = torch.device("cuda", 1)
    with driver.alone_on(here):
        assert entered == ([here, "cuda"] if moved else [])
    assert entered.count("left") == (2 if moved else 0)


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
        assert compiler.machine_code(PLAN, half=False, gpu=H200) == b"machine code"
    assert len(compiled) == 1
    compiler.machine_code(PLAN, half=True, gpu=H200)
    assert len(compiled) == 2, "another dtype is another kernel"
    monkeypatch.setattr(compiler, "version", lambda: "13.1")
    compiler.machine_code(PLAN, half=False, gpu=H200)
    assert len(compiled) == 3, "another compiler makes another kernel"


def test_a_damaged_cache_is_not_believed(compiled: list[list[str]], tmp_path: Path) -> None:
    compiler.machine_code(PLAN, half=False, gpu=H200)
    (kept,) = (tmp_path / "kernels").iterdir()
    for damage in (kept.read_bytes()[:-1], kept.read_bytes()[:-1] + b"?", b""):
        kept.write_bytes(damage)
        assert compiler.machine_code(PLAN, half=False, gpu=H200) == b"machine code"
    assert len(compiled) == 4


def test_a_cache_that_cannot_be_written_costs_only_time(compiled: list[list[str]], tmp_path: Path) -> None:
    (tmp_path / "kernels").write_text("a file where a folder should be")
    for _ in range(2):
        assert compiler.machine_code(PLAN, half=False, gpu=H200) == b"machine code"
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
    assert compiler.machine_code(plan, half=half, gpu=H200).startswith(b"\x7fELF")


@pytest.mark.slow
def test_nvrtc_takes_the_whole_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvrtc_or_skip()
    monkeypatch.setenv("STATEWISE_CACHE", str(tmp_path))
    for cell, direction, width, _, row in ENTRIES:
        for half in (False, True):
            assert compiler.machine_code(table._plan(cell, direction, width, row), half=half, gpu=H200)


def test_an_error_of_the_compiler_is_shown() -> None:
    nvrtc_or_skip()
    with pytest.raises(compiler.Unavailable, match=r"refused the kernel.*undefined_name"):
        compiler.compile_source("__device__ int f() { return undefined_name; }", ["--gpu-architecture=sm_90a"])
