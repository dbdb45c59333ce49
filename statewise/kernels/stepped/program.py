"""The kernels of a step: which ones a shape takes, how they are compiled, loaded and launched."""

import ctypes
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch

from statewise.kernels.gpu import gpu_of
from statewise.kernels.persistent.compiler import architecture, cached_code
from statewise.kernels.persistent.driver import Attribute, Launch, check, current_stream, library
from statewise.kernels.persistent.plan import Cell, Direction
from statewise.kernels.with_triton import DEPENDENT_LAUNCH_SINCE

_BESIDE = Path(__file__).parent / "source"
_UNIT = Path(__file__).parents[1] / "persistent" / "source" / "unit.cuh"
_VALUES = {torch.bfloat16: 0, torch.float16: 1, torch.float32: 2}
_THREADS = 128
_ROW_THREADS = 1024  # at most, where a block has a row
_ROOM = 512  # bytes in which the threads of a row meet

_BEGINS_EARLY = Attribute(name=6)  # "programmatic stream serialization" is the driver's name for it
_BEGINS_EARLY.value[0] = 1

# Numbers of the state from which a thread takes several neighbours: below, more threads hide more latency.
_WIDE_FROM = {4: 1 << 17, 2: 1 << 15}


class Run(ctypes.Structure):
    """The arguments of one loop over time; `run.cuh` says what each pointer is."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("gates", "inner", "y", "cells", "c0", "b_u", "lengths", "h", "c")),
        *((name, ctypes.c_void_p) for name in ("dy", "da", "du", "gain", "cell_gain", "cell_bias")),
        *((name, ctypes.c_void_p) for name in ("spread", "gain_sum", "cell_sum")),
        *((name, ctypes.c_int) for name in ("T", "B", "t")),
    )


class Place(ctypes.Structure):
    """What keeps its address from run to run."""

    _fields_ = (
        ("product", ctypes.c_void_p),
        ("operand", ctypes.c_void_p),
        *((name, ctypes.c_int) for name in ("rows", "D", "P")),
    )


class Shape(NamedTuple):
    """What a step is compiled and captured for."""

    cell: Cell
    direction: Direction
    rows: int
    width: int
    dtype: torch.dtype
    normed: bool = False
    by_unit: bool = False  # backward: what it reads was kept by a persistent kernel, four numbers for each unit

    @staticmethod
    def holding(
        batch: int,
        cell: Cell,
        direction: Direction,
        width: int,
        dtype: torch.dtype,
        *,
        normed: bool,
        by_unit: bool = False,
    ) -> "Shape":
        """With a few rows to spare where batches are odd, so that batches of all sizes come to few shapes."""
        step = 1 if batch <= 8 else 8 if batch <= 64 else 32
        return Shape(cell, direction, -(-batch // step) * step, width, dtype, normed, by_unit)


class Program(NamedTuple):
    """The template's parameters, and so the name of one compiled program."""

    cell: Cell
    direction: Direction
    normed: bool
    dtype: torch.dtype
    neighbours: int  # units a thread takes
    threads: int
    by_unit: bool = False

    @staticmethod
    def of(shape: Shape) -> "Program":
        if shape.normed:
            threads = min(_ROW_THREADS, -(-shape.width // 32) * 32)
            return Program(shape.cell, shape.direction, True, shape.dtype, 1, threads)
        numbers = shape.rows * shape.width
        fit = (n for n, least in _WIDE_FROM.items() if shape.width % n == 0 and numbers >= least)
        return Program(shape.cell, shape.direction, False, shape.dtype, next(fit, 1), _THREADS, shape.by_unit)

    @property
    def name(self) -> str:
        dtype = str(self.dtype).removeprefix("torch.")
        kind = "normed" if self.normed else "by_unit" if self.by_unit else "plain"
        return f"{kind}_{self.cell}_{self.direction}_{dtype}_{self.neighbours}_{self.threads}"

    @property
    def call(self) -> str:
        """One step, as the source writes it."""
        if self.normed:
            return f"normed_{self.direction}<{self.threads}>(run, place, k, memory)"
        values = [self.cell.upper(), self.neighbours, self.threads]
        if self.direction == "backward":
            values.append(int(self.by_unit))
        return f"plain_{self.direction}<{', '.join(map(str, values))}>(run, place, k)"

    @property
    def shared_bytes(self) -> int:
        return _ROOM if self.normed else 0

    def blocks(self, shape: Shape) -> int:
        return shape.rows if self.normed else -(-shape.rows * shape.width // self.neighbours // self.threads)

    @property
    def files(self) -> tuple[Path, ...]:
        """What it is made of, behind the file that says how numbers are stored."""
        return _UNIT, _BESIDE / "run.cuh", _BESIDE / ("normed.cuh" if self.normed else "plain.cuh")


_ENTRIES = """
extern "C" __global__ void begin(const __grid_constant__ Run given, Run* run) { *run = given; }
extern "C" __global__ void advance(Run* run, int steps) { run->t += steps; }
extern "C" __global__ void __launch_bounds__(THREADS)
step(const Run* __restrict__ run, const __grid_constant__ Place place, int k) {
  extern __shared__ __align__(16) unsigned char memory[];
  CALL;
}
"""


class Kernels(NamedTuple):
    """The three entries of a loaded program."""

    begin: ctypes.c_void_p
    step: ctypes.c_void_p
    advance: ctypes.c_void_p
    early: bool  # a step may begin before its product has ended


def machine_code(program: Program, *, target: str) -> bytes:
    entries = _ENTRIES.replace("THREADS", str(program.threads)).replace("CALL", program.call)
    text = "\n".join([path.read_text() for path in (_BESIDE / "value.cuh", *program.files)] + [entries])
    options = [f"--gpu-architecture={target}", "--std=c++17", f"-DVALUE={_VALUES[program.dtype]}", "-w"]
    return cached_code(program.name, text, options)


@cache
def load(program: Program, device: int) -> Kernels:
    """Compiled and loaded, once a process and device; `Unavailable` where that cannot be."""
    gpu = gpu_of(device)
    code = machine_code(program, target=architecture(gpu))
    with torch.cuda.device(device):
        torch.cuda.current_stream()  # PyTorch's own context is the one to load into
        module = ctypes.c_void_p()
        check(library().cuModuleLoadData(ctypes.byref(module), code), f"the program {program.name}")

        def entry(name: str) -> ctypes.c_void_p:
            function = ctypes.c_void_p()
            check(library().cuModuleGetFunction(ctypes.byref(function), module, name.encode()), f"the name {name}")
            return function

        early = program.direction == "backward" and gpu.capability >= DEPENDENT_LAUNCH_SINCE
        return Kernels(entry("begin"), entry("step"), entry("advance"), early)


def launch(function: ctypes.c_void_p, arguments: tuple[Any, ...], shape: Launch | None = None) -> None:
    """On the current stream; `arguments` are ctypes values in the order of the kernel's parameters."""
    addresses = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(value) for value in arguments))
    shape = shape or threads_of()
    shape.stream = current_stream()
    check(library().cuLaunchKernelEx(ctypes.byref(shape), function, addresses, None), "to launch a step")


def threads_of(*, blocks: int = 1, threads: int = 1, shared_bytes: int = 0, early: bool = False) -> Launch:
    made = Launch()
    made.grid[0:3], made.block[0:3], made.shared_bytes = [blocks, 1, 1], [threads, 1, 1], shared_bytes
    if early:
        made.attributes, made.count = ctypes.addressof(_BEGINS_EARLY), 1
    return made
