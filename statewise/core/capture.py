"""A process that is whole again after a capture that failed."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import torch


@contextmanager
def capturing(graph: torch.cuda.CUDAGraph, device: torch.device) -> Iterator[None]:
    """Around the capture of this graph. Where it fails, the error goes on, and PyTorch can be used as before.

    A capture that fails leaves its marks: memory still goes to its pool, and random numbers are taken for captured
    ones, so that the next draw outside raises an error. A capture that succeeds takes the second mark away.
    """
    try:
        yield
    except RuntimeError:
        with suppress(RuntimeError):  # where the end of the capture came as far as this
            torch._C._cuda_endAllocateToPool(device.index or 0, graph.pool())
        with suppress(RuntimeError):  # where nothing can be captured at all
            _capture_something(device)
        raise


def _capture_something(device: torch.device) -> None:
    with torch.cuda.device(device):
        graph, aside = torch.cuda.CUDAGraph(), torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        with torch.cuda.stream(aside):
            graph.capture_begin(capture_error_mode="thread_local")
            torch.zeros(1, device=device)
            graph.capture_end()
