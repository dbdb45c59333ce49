"""Where a CPU advertises AMX, oneDNN is kept from it until a child process has shown that it works."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from statewise.cpu import cap_onednn_where_amx_may_fail
from statewise.training import device

VARIABLES = ("ONEDNN_MAX_CPU_ISA", "STATEWISE_AMX_CAPPED")


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def cpu(folder: Path, flags: str) -> Path:
    path = folder / "cpuinfo"
    path.write_text(f"processor : 0\nflags\t\t: fpu {flags} sse2\n")
    return path


def test_capped_where_amx_is_advertised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cap_onednn_where_amx_may_fail(cpu(tmp_path, "avx512f amx_bf16 amx_tile"))
    assert os.environ["ONEDNN_MAX_CPU_ISA"] == "AVX512_CORE_FP16"
    for name in VARIABLES:
        monkeypatch.delenv(name)


def test_left_alone_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cap_onednn_where_amx_may_fail(cpu(tmp_path, "avx2"))
    cap_onednn_where_amx_may_fail(tmp_path / "not there")
    assert "ONEDNN_MAX_CPU_ISA" not in os.environ
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    cap_onednn_where_amx_may_fail(cpu(tmp_path, "amx_bf16"))
    assert os.environ["ONEDNN_MAX_CPU_ISA"] == "AVX2", "whoever set it meant it"


@pytest.mark.parametrize(("child", "lifted"), [("pass", True), ("import os; os.kill(os.getpid(), 4)", False)])
def test_the_cap_is_lifted_only_if_a_child_survives(child: str, lifted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second child dies of SIGILL, as the product would."""
    monkeypatch.setattr(device, "_PROBE", child)
    assert device.allow_amx_if_it_works() is False, "nothing was capped, so nothing is probed"
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")
    monkeypatch.setenv("STATEWISE_AMX_CAPPED", "1")
    assert device.allow_amx_if_it_works() is lifted
    assert ("ONEDNN_MAX_CPU_ISA" in os.environ) is not lifted


def test_the_real_probe_runs() -> None:
    probe = subprocess.run([sys.executable, "-c", device._PROBE], capture_output=True, text=True, check=False)
    assert probe.returncode in (0, -4), probe.stderr
