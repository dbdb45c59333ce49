"""Around the capture of a CUDA graph: nothing comes in between, and where it fails the process is whole again."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch


@contextmanager
def capturing(device: torch.device, pool: Any) -> Iterator[None]:
    """A capture into this pool takes place inside. Where it fails, the error goes on, and PyTorch works as before.

    Memory is not cleared up meanwhile: a graph that goes spoils one that is being made. A capture that fails leaves its
    marks: memory still goes to its pool, and random numbers are taken for captured ones, so that the next draw outside
    raises an error. A capture that succeeds takes the second mark away.
    """
    clears = gc.isenabled()
    gc.disable()
    try:
        yield
    except RuntimeError:
        with suppress(RuntimeError):  # where the end of the capture came as far as this
            torch._C._cuda_endAllocateToPool(device.index or 0, pool)
        with suppress(RuntimeError):  # where nothing can be captured at all
            _capture_something(device)
        raise
    finally:
        if clears:
            gc.enable()


def captured(work: Callable[[], object], device: torch.device) -> torch.cuda.CUDAGraph:
    """One call of `work` as a graph, in a pool of its own. Other threads may allocate meanwhile."""
    graph, pool = torch.cuda.CUDAGraph(), torch.cuda.graph_pool_handle()
    with capturing(device, pool), torch.cuda.graph(graph, pool, capture_error_mode="thread_local"):
        work()
    return graph


def _capture_something(device: torch.device) -> None:
    with torch.cuda.device(device):
        graph, aside = torch.cuda.CUDAGraph(), torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        with torch.cuda.stream(aside):
            graph.capture_begin(capture_error_mode="thread_local")
            torch.zeros(1, device=device)
            graph.capture_end()
