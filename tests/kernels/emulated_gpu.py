"""Runs the CUDA kernels on a CPU: the sources as they are, every thread a coroutine, in an order drawn anew each round.

`gpu_of_coroutines.h` stands in for the instructions of `ptx.cuh`, clusters, barriers and the tensor unit included. It
keeps their rules, not their timing.
"""

import ctypes
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch

from statewise.kernels.persistent.driver import Run
from statewise.kernels.persistent.plan import GATES, Plan

SOURCE = Path(__file__).parents[2] / "statewise" / "kernels" / "persistent" / "source"
Launch = Callable[..., None]  # plan, argument, seed of the order; `missing` clusters are left out


class _Map(ctypes.Structure):
    """What the emulated tensor unit is told: address, extents of k, rows and time, rows and chunks of a box."""

    _fields_ = (("values", ctypes.c_uint64 * 16),)


def emulator(plans: Sequence[Plan], folder: Path) -> Launch:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler here")
    names = dict.fromkeys(name for plan in plans for name in plan.sources if name != "ptx.cuh")
    header = Path(__file__).parent / "gpu_of_coroutines.h"
    text = "\n".join([header.read_text(), *((SOURCE / name).read_text() for name in names)])
    for plan in plans:
        arguments = "*p, *map, memory" if plan.kind == "wide" else "*p, memory"
        text += (
            f'extern "C" void {plan.name}(Run* p, Map* map, unsigned x, unsigned y, unsigned seed) {{\n'
            f"  launch(x, y, {plan.blocks}, {plan.threads}, {plan.shared_bytes}, seed, "
            f"[=](unsigned char* memory) {{ {plan.call}({arguments}); }});\n}}\n"
        )
    (folder / "kernels.cpp").write_text(text)
    command = [compiler, "-O1", "-std=c++17", "-w", "-fno-strict-aliasing", "-shared", "-fPIC"]
    subprocess.run([*command, str(folder / "kernels.cpp"), "-o", str(folder / "kernels.so")], check=True)
    library = ctypes.CDLL(str(folder / "kernels.so"))

    def launch(plan: Plan, run: Run, seed: int, *, missing: int = 0) -> None:
        across, down = plan.grid(run.B)
        grid = across - missing * plan.blocks, down
        counters = torch.zeros(run.T, grid[1], plan.turns, dtype=torch.int32)
        run.counters = counters.data_ptr()
        forward = plan.direction == "forward"
        width = plan.width * (1 if forward else GATES[plan.cell])
        extents = (run.y if forward else run.exchange, width, run.B, run.T + forward, plan.rows, plan.chunks_at_once)
        getattr(library, plan.name)(
            ctypes.byref(run), ctypes.byref(_Map((ctypes.c_uint64 * 16)(*extents))), *grid, seed
        )

    return launch
