"""CUDA graphs: warm up, capture and replay a piece of work; restore PyTorch if a capture fails.

Launched from Python, the ops of a small model cost far more than their arithmetic. A captured graph is one launch. It
reads and writes fixed memory, so whoever replays it copies the inputs there first.
"""

import gc
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

import torch

WARM_UP = 3  # calls before a capture: libraries allocate and choose their algorithms in the first ones

_checks: list[Callable[[], None]] = []


def check_replays_with(check: Callable[[], None]) -> None:
    """Register a check that raises what a kernel has reported: inside a graph, a kernel has no caller to tell."""
    _checks.append(check)


class Replay:
    """Each call replays `work`, captured on CUDA when this is made. Elsewhere each call runs `work` (for the tests).

    After the capture `work` is dropped: a graph knows where the weights are, and keeps no model alive.
    `compiled`: `work` ran before, so that not even the first warm-up call may wait for the host.
    `reset` runs after each warm-up call.
    """

    def __init__(
        self,
        work: Callable[[], object],
        device: torch.device,
        *,
        warm_up: int = WARM_UP,
        compiled: bool = False,
        reset: Callable[[], object] | None = None,
    ) -> None:
        self._run = work
        if device.type != "cuda":
            return
        here = torch.cuda.current_stream(device)
        aside = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch leaves it untyped
        aside.wait_stream(here)
        with torch.cuda.stream(aside):
            for turn in range(warm_up):
                # The first call may load and compile; after it, work that waits for the host cannot be captured.
                with no_waiting() if turn or compiled else nullcontext():
                    work()
                if reset is not None:
                    reset()
        here.wait_stream(aside)
        self._run = captured(work, device).replay

    def __call__(self) -> None:
        self._run()

    @staticmethod
    def check() -> None:
        """Raise what a kernel of an earlier replay has reported."""
        for check in _checks:
            check()


@contextmanager
def no_waiting() -> Iterator[None]:
    """Inside, any operation that waits for a GPU raises an error."""
    mode = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch warns that this misses some ways to wait
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(mode)


@contextmanager
def capturing(device: torch.device, pool: Any) -> Iterator[None]:
    """A capture into this memory pool takes place inside. If it fails, the error is raised and PyTorch works as before.

    The garbage collector is off meanwhile: freeing one graph spoils another that is being captured. A failed capture
    leaves two traces: memory is still allocated from its pool, and the generator of random numbers stays in capture
    mode, so that the next draw outside raises an error. A successful capture removes the second.
    """
    clears = gc.isenabled()
    gc.disable()
    try:
        yield
    except RuntimeError:
        with suppress(RuntimeError):  # the end of the capture may have done this
            torch._C._cuda_endAllocateToPool(device.index or 0, pool)
        with suppress(RuntimeError):  # where nothing can be captured at all
            _capture_something(device)
        raise
    finally:
        if clears:
            gc.enable()


def captured(work: Callable[[], object], device: torch.device) -> torch.cuda.CUDAGraph:
    """One call of `work` as a graph, in a memory pool of its own. Other threads may allocate meanwhile."""
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
