"""The persistent kernels on GPUs that nobody here has: plans within their limits, and code their compiler takes."""

from pathlib import Path
from types import SimpleNamespace
from typing import get_args

import pytest
import torch

from statewise.kernels import gpu as gpus
from statewise.kernels.gpu import H200, KNOWN, Gpu, gpu_of
from statewise.kernels.persistent import compiler, table
from statewise.kernels.persistent.plan import Cell, Plan
from statewise.specs import UserError

OTHERS = {name: gpu for name, gpu in KNOWN.items() if name != "9.0"}


@pytest.mark.parametrize("name", OTHERS)
def test_plans_keep_the_limits_of_the_gpu(name: str) -> None:
    gpu, found = OTHERS[name], 0
    for cell in get_args(Cell):
        for width in (100, 256, 512, 1024, 2048):
            for batch in (1, 16, 100, 256):
                pair = table.plans(cell, width=width, batch=batch, gpu=gpu)
                for plan in pair or ():
                    assert plan.portable
                    assert plan.fits(gpu)
                    assert plan.width >= width
                    across, down = plan.grid(batch)
                    assert down * plan.rows >= batch or plan.kind == "cluster"
                    if plan.cooperative:
                        assert across * down <= gpu.multiprocessors
                    found += 1
    assert found >= 20, "a narrow layer has a plan everywhere"
    assert table.plans("lstm", width=2048, batch=256, gpu=gpu) is None
    assert table.plans("lstm", width=4096, batch=1, gpu=gpu) is None


def test_a_small_hopper_takes_the_table_where_it_has_room() -> None:
    small = H200._replace(multiprocessors=78)
    narrow = table.measured("lstm", width=128, batch=16)
    assert table.plans("lstm", width=128, batch=16, gpu=small) == narrow
    wide = table.measured("lstm", width=1024, batch=16)
    assert wide is not None
    across, down = wide[0].grid(16)
    assert across * down > small.multiprocessors
    assert table.plans("lstm", width=1024, batch=16, gpu=small) == table.expected("lstm", 1024, 16, small)


def test_shared_memory_is_asked_of_the_gpu_and_not_assumed() -> None:
    roomy = Plan("polled", "lstm", "forward", 1024, 1, 16, 1, 8, 1)
    assert roomy.fits(H200)
    assert not roomy.fits(KNOWN["8.6"])
    assert not Plan("cluster", "lstm", "forward", 128, 4, 128, 1, 8, 8).fits(KNOWN["10.0"]), "a cluster"


def test_machine_code_of_the_very_gpu_or_else_ptx(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "supported", lambda: (75, 80, 90, 100))
    monkeypatch.setattr(compiler, "version", lambda: "13.0")
    asked = {(8, 0): "sm_80", (9, 0): "sm_90a", (10, 0): "sm_100", (12, 0): "compute_100"}
    for capability, name in asked.items():
        assert compiler.architecture(Gpu(capability, 100, 99 * 1024)) == name
    assert compiler.architecture(KNOWN["8.0"]) == "compute_80", "pretended: the GPU that is there may be another"
    with pytest.raises(compiler.Unavailable, match=r"capability 7\.0"):
        compiler.architecture(Gpu((7, 0), 80, 96 * 1024))


def a_gpu(monkeypatch: pytest.MonkeyPatch, major: int, minor: int) -> None:
    here = SimpleNamespace(
        major=major, minor=minor, multi_processor_count=100, shared_memory_per_block_optin=227 * 1024
    )
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: here)
    monkeypatch.setattr(gpus, "_gpu", gpus._gpu.__wrapped__)


def test_a_gpu_can_pretend_to_be_an_older_one(monkeypatch: pytest.MonkeyPatch) -> None:
    a_gpu(monkeypatch, 9, 0)
    assert gpu_of(0) == Gpu((9, 0), 100, 227 * 1024)
    monkeypatch.setenv("STATEWISE_CAPABILITY", "8.0")
    assert gpu_of(0) == Gpu((8, 0), 100, 163 * 1024, pretended=True), "no more than both have"
    for wrong in ("10.0", "eight"):
        monkeypatch.setenv("STATEWISE_CAPABILITY", wrong)
        with pytest.raises(UserError, match=r"valid here: 8.0, 8.6, 8.9, 9.0"):
            gpu_of(0)


@pytest.mark.parametrize("name", OTHERS)
def test_nvrtc_takes_the_kernels_for(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Machine code for the GPU itself, so the assembler has seen it; and the PTX of pretending."""
    try:
        known = compiler.supported()
    except compiler.Unavailable as reason:
        pytest.skip(str(reason))
    gpu = OTHERS[name]._replace(pretended=False)
    assert 10 * gpu.capability[0] + gpu.capability[1] in known
    monkeypatch.setenv("STATEWISE_CACHE", str(tmp_path))
    pairs = [
        table.plans(cell, width=width, batch=16, gpu=gpu) for cell in ("lstm", "gru", "relu") for width in (128, 512)
    ]
    assert {plan.kind for pair in pairs for plan in pair or ()} == {"cluster", "polled"}
    for plan in (plan for pair in pairs for plan in pair or ()):
        assert compiler.machine_code(plan, half=plan.cell == "gru", gpu=gpu).startswith(b"\x7fELF")
    ptx = compiler.machine_code(pairs[0][0], half=False, gpu=OTHERS[name])
    assert f".target sm_{name.replace('.', '')}".encode() in ptx
