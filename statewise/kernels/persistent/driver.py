"""Loading and launching compiled kernels through the CUDA driver, on PyTorch's current device and stream."""

import ctypes
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from statewise.kernels.gpu import Gpu, gpu_of
from statewise.kernels.persistent.compiler import Unavailable, machine_code
from statewise.kernels.persistent.plan import GATES, Plan

# Names of the driver's numbers.
_SHARED_BYTES, _BEYOND_EIGHT = 8, 14  # function attributes
_COOPERATIVE, _CLUSTER = 2, 4  # launch attributes
_UINT16, _SWIZZLE_128, _PROMOTE_128 = 1, 3, 2  # of a tensor map


class Run(ctypes.Structure):
    """The kernels' one argument; `cell.cuh` says what each pointer is."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("x", "w", "b_u", "c0", "lengths", "y", "saved", "cells")),
        *((name, ctypes.c_void_p) for name in ("exchange", "candidate", "dh", "dc", "h_out", "c_out")),
        *((name, ctypes.c_void_p) for name in ("counters", "alarm")),
        ("patience", ctypes.c_uint64),
        ("T", ctypes.c_int),
        ("B", ctypes.c_int),
        ("short_last", ctypes.c_int),
    )


class Attribute(ctypes.Structure):
    _fields_ = (("name", ctypes.c_int), ("unused", ctypes.c_int), ("value", ctypes.c_uint * 16))


class Launch(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("count", ctypes.c_uint),
    )


class _Map(ctypes.Structure):
    """How the tensor unit sees a tensor: the driver fills it, and wants it at a multiple of 64 bytes."""

    _fields_ = (("room", ctypes.c_uint64 * 24),)

    @property
    def address(self) -> int:
        return -(-ctypes.addressof(self) // 64) * 64


class Kernel(NamedTuple):
    plan: Plan
    function: ctypes.c_void_p
    room: int  # clusters that fit on the chip at once

    def fits(self, batch: int) -> bool:
        """Whether all blocks run at once. Clusters that do not wait for other clusters may also run sequentially."""
        across, down = self.plan.grid(batch)
        return not self.plan.cooperative or across * down // self.plan.blocks <= self.room


@cache
def library() -> ctypes.CDLL:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise Unavailable(f"the CUDA driver was not found ({error})") from error


def check(code: int, what: str) -> None:
    if code:
        text = ctypes.c_char_p()
        library().cuGetErrorString(code, ctypes.byref(text))
        raise Unavailable(f"the CUDA driver refused {what}: {(text.value or b'?').decode()} ({code})")


def kernel(plan: Plan, *, half: bool, device: int) -> Kernel:
    """Compiled and loaded, once a process and device."""
    return _kernel(plan, half, device, gpu_of(device))


@cache
def _kernel(plan: Plan, half: bool, device: int, gpu: Gpu) -> Kernel:
    cuda = library()
    code = machine_code(plan, half=half, gpu=gpu)
    with torch.cuda.device(device):
        torch.cuda.current_stream()  # PyTorch's own context is the one to load into
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        check(cuda.cuModuleLoadData(ctypes.byref(module), code), f"the kernel {plan.name}")
        check(cuda.cuModuleGetFunction(ctypes.byref(function), module, plan.name.encode()), f"the name {plan.name}")
        check(cuda.cuFuncSetAttribute(function, _SHARED_BYTES, plan.shared_bytes), "the shared memory")
        if plan.blocks > 8:
            check(cuda.cuFuncSetAttribute(function, _BEYOND_EIGHT, 1), f"a cluster of {plan.blocks}")
        return Kernel(plan, function, _room(plan, function, gpu))


def _room(plan: Plan, function: ctypes.c_void_p, gpu: Gpu) -> int:
    cuda, count = library(), ctypes.c_int()
    if plan.blocks == 1:
        query = cuda.cuOccupancyMaxActiveBlocksPerMultiprocessor
        size = ctypes.c_size_t(plan.shared_bytes)
        check(query(ctypes.byref(count), function, plan.threads, size), "a question about room")
        return count.value * gpu.multiprocessors
    launch, _attributes = _prepare(plan, (plan.blocks, 1), stream=None, cooperative=False)
    check(cuda.cuOccupancyMaxActiveClusters(ctypes.byref(count), function, ctypes.byref(launch)), "room for clusters")
    return count.value


@lru_cache(maxsize=256)
def _prepare(
    plan: Plan, grid: tuple[int, int], *, stream: int | None, cooperative: bool
) -> tuple[Launch, ctypes.Array[Attribute]]:
    """Launch arguments that are written once, so that later launches and other threads can reuse them."""
    attributes = (Attribute * 2)()
    count = 0
    if plan.blocks > 1:
        attributes[count].name = _CLUSTER
        attributes[count].value[0:3] = [plan.blocks, 1, 1]
        count += 1
    if cooperative:
        attributes[count].name = _COOPERATIVE
        attributes[count].value[0] = 1
        count += 1
    launch = Launch()
    launch.grid[0:3] = [*grid, 1]
    launch.block[0:3] = [plan.threads, 1, 1]
    launch.shared_bytes, launch.stream, launch.count = plan.shared_bytes, stream, count
    launch.attributes = ctypes.cast(attributes, ctypes.c_void_p)
    return launch, attributes  # the second keeps alive what the first points to


def launch(kernel: Kernel, run: Run, *, batch: int) -> None:
    """On the current stream. `Unavailable` where the chip has no room for all blocks at once."""
    plan = kernel.plan
    assert kernel.fits(batch), "the choice asks before"
    launch, _ = _prepare(plan, plan.grid(batch), stream=current_stream(), cooperative=plan.cooperative)
    seen = _map(plan, run) if plan.kind == "wide" else None
    arguments = (ctypes.c_void_p * 2)(ctypes.addressof(run), None if seen is None else seen.address)
    code = library().cuLaunchKernelEx(ctypes.byref(launch), kernel.function, arguments, None)
    if code:
        check(code, f"to launch {plan.name}")


def current_stream() -> int:
    """PyTorch's, as the driver knows it; an object of PyTorch's own takes longer to make than a launch."""
    return torch._C._cuda_getCurrentRawStream(torch.cuda.current_device())


_HERE = nullcontext()


def alone_on(device: torch.device) -> AbstractContextManager[None]:
    """This device is the current one, and autocast leaves dtypes alone. Most often both are so."""
    if device.index == torch.cuda.current_device() and not torch.is_autocast_enabled("cuda"):
        return _HERE
    return _moved_to(device)


@contextmanager
def _moved_to(device: torch.device) -> Iterator[None]:
    with torch.cuda.device(device), torch.autocast("cuda", enabled=False):
        yield


def _map(plan: Plan, run: Run) -> _Map:
    """Boxes of a few times 64 values by a batch slice, of the states forward and of the gradients backward."""
    forward = plan.direction == "forward"
    values = plan.width * (1 if forward else GATES[plan.cell])
    made = _Map()
    check(
        library().cuTensorMapEncodeTiled(
            ctypes.c_void_p(made.address),
            _UINT16,
            4,
            ctypes.c_void_p(run.y if forward else run.exchange),
            (ctypes.c_uint64 * 4)(64, run.B, values // 64, run.T + forward),
            (ctypes.c_uint64 * 3)(2 * values, 128, 2 * values * run.B),
            (ctypes.c_uint32 * 4)(64, plan.rows, plan.chunks_at_once, 1),
            (ctypes.c_uint32 * 4)(1, 1, 1, 1),
            0,
            _SWIZZLE_128,
            _PROMOTE_128,
            0,
        ),
        "a tensor map",
    )
    return made


def pointer(value: Tensor | None) -> int | None:
    return None if value is None else value.data_ptr()
