"""Find the launches of `statewise/kernels/chunk_autograd.py` that are fastest on this GPU: one kernel after the other.

    python benchmarks/linear_recurrence_tune.py [--only OP ...] [--widths 64 128] [--shape 8x2048x8] [--workers 16]

Workers compile all candidates first, each a share of them; then one process times forward and backward in a CUDA
graph, with one launch changed at a time, and keeps what is faster by more than a hundredth. It ends with the time
of each kernel by PyTorch's profiler.
"""

import multiprocessing
import time
from collections.abc import Iterator
from typing import Any

import torch
from command_line import need_gpu, options, positive
from linear_recurrence import both_ways, case, in_graph, medians, ours, shape_of

from statewise.kernels import chunk_autograd
from statewise.kernels.chunk_autograd import Call, Launch

OPS = ["gated delta", "linear attention"]
WALKS = [(16, 4, 3), (32, 4, 2), (32, 4, 3), (32, 4, 4), (64, 4, 3), (64, 8, 3), (16, 2, 3), (32, 2, 3)]
ALONE = [(64, 4, 1), (64, 8, 1), (32, 4, 1), (64, 2, 1)]
WIDE = [(128, 8, 1), (128, 4, 1)]  # all columns of a value of 128 at once
OF_DELTA = ("prepare", "from_outputs", "through_written")


def candidates(op: str, width: int) -> Iterator[tuple[str, Launch]]:
    for name in chunk_autograd._NARROW[width]:
        if name in OF_DELTA and op != "gated delta":
            continue
        walks = name.startswith("states")
        for each in WALKS if walks else [*ALONE, *(WIDE if width == 128 else [])]:
            yield name, Launch(*each)


def compile_share(work: list[tuple[str, int, str, Launch]]) -> None:
    """Launches nothing but the kernel in question, so that a worker compiles no other."""
    real: Any = Call.launch
    for op, width, name, launch in work:

        def only(call: Call, kernel: Any, each: str, *given: Any, name: str = name, **more: bool) -> None:
            if each == name:
                real(call, kernel, each, *given, **more)

        Call.launch = only  # type: ignore[method-assign]
        before = chunk_autograd._NARROW[width][name]
        chunk_autograd._NARROW[width][name] = launch
        try:
            both_ways(ours(op), case(op, 1, 64, 1, width))()
        except Exception as error:
            print(f"{op} {width} {name} {tuple(launch)}: {str(error)[:100]}", flush=True)
        chunk_autograd._NARROW[width][name] = before


def milliseconds(op: str, inputs: list[torch.Tensor]) -> float:
    try:
        return medians({"ours": in_graph(both_ways(ours(op), inputs))}, repeats=5, calls=20)["ours"]
    except Exception:
        torch.cuda.synchronize()
        return float("inf")


def tune(op: str, width: int, shape: tuple[int, ...]) -> None:
    inputs, plan = case(op, *shape, width), chunk_autograd._NARROW[width]
    best = milliseconds(op, inputs)
    print(f"{op}, width {width}: {best:.3f} ms", flush=True)
    tried: dict[str, list[str]] = {}
    for name, launch in candidates(op, width):
        kept = plan[name]
        plan[name] = launch
        took = milliseconds(op, inputs)
        tried.setdefault(name, []).append(f"{tuple(launch)} {took:.3f}")
        if took < 0.99 * best:
            best = took
        else:
            plan[name] = kept
    for name, times in tried.items():
        print(f"  {name:16} {tuple(plan[name])!s:12} of {'; '.join(times)}", flush=True)
    print(f"  {best:.3f} ms; called from Python {medians({'': both_ways(ours(op), inputs)})['']:.3f} ms", flush=True)
    profile(op, inputs)


def profile(op: str, inputs: list[torch.Tensor]) -> None:
    go = both_ways(ours(op), inputs)
    go()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        for _ in range(5):
            go()
        torch.cuda.synchronize()
    for event in sorted(profiler.key_averages(), key=lambda event: -event.device_time_total):
        print(f"    {event.key[:60]:60} {event.device_time_total / 5:8.1f} us")


def main() -> None:
    parser = options(__doc__, numbers=False)
    parser.add_argument("--only", nargs="+", choices=OPS, default=OPS)
    parser.add_argument("--widths", nargs="+", type=int, choices=(64, 128), default=(64, 128))
    parser.add_argument("--shape", type=shape_of, default=(8, 2048, 8), metavar="BxTxH")
    parser.add_argument("--workers", type=positive, default=16)
    asked = parser.parse_args()
    need_gpu()
    began = time.perf_counter()
    work = [(op, width, *each) for op in asked.only for width in asked.widths for each in candidates(op, width)]
    shares = [work[number :: asked.workers] for number in range(asked.workers)]
    spawned = multiprocessing.get_context("spawn")
    workers = [spawned.Process(target=compile_share, args=(share,)) for share in shares]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    print(f"compiled {len(work)} candidates in {time.perf_counter() - began:.0f} s", flush=True)
    for op in asked.only:
        for width in asked.widths:
            tune(op, width, asked.shape)


if __name__ == "__main__":
    main()
