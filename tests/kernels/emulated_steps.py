"""Runs the kernels of a step on a CPU: the sources as they are, every thread a coroutine (`gpu_of_coroutines.h`)."""

import ctypes
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from statewise.kernels.persistent.driver import Launch
from statewise.kernels.stepped.program import Kernels, Place, Program, Run

# How numbers are stored; the header has the functions of a cell.
_VALUES = {
    torch.float32: "typedef float V;",
    torch.bfloat16: """typedef u16 V;
DI float wide(u16 v) { return widen(v); }
DI void put(u16& to, float v) { to = narrow(v); }""",
    torch.float16: """typedef u16 V;
DI float wide(u16 v) { _Float16 h; memcpy(&h, &v, 2); return h; }
DI void put(u16& to, float v) { _Float16 h = v; memcpy(&to, &h, 2); }""",
}
_ROOM = 512  # bytes of shared memory
_FLOATS = "DI float wide(float v) { return v; } DI void put(float& to, float v) { to = v; }"


class Emulated(NamedTuple):
    """What stands in for `load` and `launch` of `stepped/program.py`."""

    load: Callable[[Program, int], Any]
    launch: Callable[..., None]


def emulator(programs: Sequence[Program], folder: Path) -> Emulated:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler here")
    library: dict[Program, ctypes._CFuncPtr] = {}
    for dtype in dict.fromkeys(program.dtype for program in programs):
        same = [program for program in programs if program.dtype == dtype]
        for program, step in zip(same, _compiled(same, compiler, folder / str(dtype)), strict=True):
            library[program] = step

    def load(program: Program, device: int) -> Any:
        begin, step, advance = ((entry, program) for entry in ("begin", "step", "advance"))
        return Kernels(begin, step, advance, early=False)  # type: ignore[arg-type]  # who launches knows what they stand for

    def launch(function: tuple[str, Program], arguments: tuple[Any, ...], shape: Launch | None = None) -> None:
        entry, program = function
        if entry == "begin":
            given, record = arguments
            ctypes.memmove(record.value, ctypes.addressof(given), ctypes.sizeof(Run))
        elif entry == "advance":
            record, steps = arguments
            Run.from_address(record.value).t += steps.value
        else:
            record, place, k = arguments
            assert isinstance(place, Place)
            assert shape is not None
            library[program](record, ctypes.byref(place), k, ctypes.c_uint(shape.grid[0]))
            assert shape.block[0] == program.threads

    return Emulated(load, launch)


def _compiled(programs: list[Program], compiler: str, folder: Path) -> list[Any]:
    """A function for each program; all of one dtype are one library."""
    folder.mkdir()
    header = (Path(__file__).parent / "gpu_of_coroutines.h").read_text()
    files = dict.fromkeys(path for program in programs for path in program.files)
    text = "\n".join([header, _VALUES[programs[0].dtype], _FLOATS, *(path.read_text() for path in files)])
    for program in programs:
        text += (
            f'extern "C" void {program.name}(const Run* run, const Place* given, int k, unsigned blocks) {{\n'
            f"  const Place place = *given;\n  launch(blocks, 1, 1, {program.threads}, {_ROOM}, 7, "
            f"[=](unsigned char* memory) {{ {program.call}; }});\n}}\n"
        )
    (folder / "steps.cpp").write_text(text)
    command = [compiler, "-O1", "-std=c++17", "-w", "-fno-strict-aliasing", "-shared", "-fPIC"]
    subprocess.run([*command, str(folder / "steps.cpp"), "-o", str(folder / "steps.so")], check=True)
    made = ctypes.CDLL(str(folder / "steps.so"))
    return [getattr(made, program.name) for program in programs]
