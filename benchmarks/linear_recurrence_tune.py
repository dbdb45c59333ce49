"""Find the launches of `statewise/kernels/chunk_autograd.py` that are fastest on this GPU: one kernel after the other.

    python benchmarks/linear_recurrence_tune.py [--only OP ...] [--widths 64 128] [--shape 8x2048x8] [--workers 16]

Workers compile all candidates first, each a share of them. Then one launch at a time is changed: results and gradients
of a small case are compared with float64, and forward and backward of the shape are timed in a CUDA graph. A candidate
whose process dies is reported, and the next one gets a new process. It ends with the time of each kernel.
"""

import multiprocessing
import os
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # so that processes can be forked after it

import torch
from command_line import need_gpu, options, positive
from linear_recurrence import both_ways, case, errors, in_graph, medians, ours, reference, shape_of

from statewise.kernels import chunk_autograd
from statewise.kernels.chunk_autograd import Call, Launch

OPS = ["gated delta", "linear attention"]
SMALL = (2, 200, 2)
WALKS = [(16, 4, 2), (32, 4, 2), (64, 4, 2), (32, 2, 2), (32, 4, 3), (16, 4, 3)]
ALONE = [(64, 4, 1), (64, 8, 1)]
WIDE = [*ALONE, (128, 8, 1)]  # of values of 128
OF_DELTA = ("prepare", "from_outputs", "through_written")
Candidate = tuple[str, int, str, Launch]
Forked: Any = multiprocessing.get_context("fork")


def candidates(op: str, width: int) -> Iterator[Candidate]:
    for name in chunk_autograd._NARROW:
        if name not in OF_DELTA or op == "gated delta":
            walks = name.startswith("states")
            for each in WALKS if walks else ALONE if width == 64 else WIDE:
                yield op, width, name, Launch(*each)


def compile_share(work: list[Candidate]) -> None:
    """Launches nothing but the kernel in question, so that a worker compiles no other."""
    real: Any = Call.launch
    for op, width, name, launch in work:

        def only(call: Call, kernel: Any, each: str, *given: Any, name: str = name, **more: bool) -> None:
            if each == name:
                real(call, kernel, each, *given, **more)

        Call.launch = only  # type: ignore[method-assign]
        chunk_autograd._NARROW[name] = launch
        try:
            both_ways(ours(op), case(op, *SMALL, width))()
            torch.cuda.synchronize()
        except Exception as error:
            print(f"{op} {width} {name} {tuple(launch)}: {str(error)[:100]}", flush=True)


def measure(work: list[Candidate], shape: tuple[int, ...], answers: Connection) -> None:
    """One answer each: milliseconds, and the error."""
    big: dict[Any, list[torch.Tensor]] = {}
    exact: dict[Any, list[torch.Tensor]] = {}
    for op, width, name, launch in work:
        plan = chunk_autograd._NARROW
        before, plan[name] = plan[name], launch
        small = case(op, *SMALL, width)
        if (op, width) not in big:
            big[op, width] = case(op, *shape, width)
            exact[op, width] = reference(op, small, [0, 1], device=torch.device("cpu"))
        error = max(errors(both_ways(ours(op), small)(), exact[op, width], [0, 1]))
        run = in_graph(both_ways(ours(op), big[op, width]))
        answers.send((medians({"": run}, repeats=5, calls=20)[""], error))
        plan[name] = before


def tune(work: list[Candidate], shape: tuple[int, ...]) -> None:
    at = 0
    while at < len(work):
        answers, theirs = Forked.Pipe(duplex=False)
        process = Forked.Process(target=measure, args=(work[at:], shape, theirs))
        process.start()
        theirs.close()
        while at < len(work):
            op, width, name, launch = work[at]
            try:
                took, error = answers.recv()
                print(f"{op} {width} {name:16} {tuple(launch)!s:20} {took:.3f} ms, error {error:.1e}", flush=True)
            except EOFError:
                print(f"{op} {width} {name:16} {tuple(launch)!s:20} FAILED", flush=True)
                at += 1
                break
            at += 1
        process.join()


def profile(op: str, width: int, shape: tuple[int, ...]) -> None:
    small = case(op, *SMALL, width)
    exact = reference(op, small, [0, 1], device=torch.device("cpu"))
    each = errors(both_ways(ours(op), small)(), exact, [0, 1])
    print(f"{op} {width}, errors of outputs, state, gradients: {' '.join(f'{e:.1e}' for e in each)}", flush=True)
    go = both_ways(ours(op), case(op, *shape, width))
    took = medians({"": go})[""]
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        for _ in range(5):
            go()
        torch.cuda.synchronize()
    found = sorted(profiler.key_averages(), key=lambda event: -event.device_time_total)
    kernels = ", ".join(f"{event.key[:30]} {event.device_time_total / 5:.1f}" for event in found)
    print(f"{op} {width}, called from Python {took:.3f} ms; microseconds: {kernels}", flush=True)


def main() -> None:
    parser = options(__doc__, numbers=False)
    parser.add_argument("--only", nargs="+", choices=OPS, default=OPS)
    parser.add_argument("--widths", nargs="+", type=int, choices=(64, 128), default=(64, 128))
    parser.add_argument("--shape", type=shape_of, default=(8, 2048, 8), metavar="BxTxH")
    parser.add_argument("--workers", type=positive, default=16)
    asked = parser.parse_args()
    need_gpu()
    began = time.perf_counter()
    work = [each for width in asked.widths for op in asked.only for each in candidates(op, width)]
    shares = [work[number :: asked.workers] for number in range(asked.workers)]
    workers = [Forked.Process(target=compile_share, args=(share,)) for share in shares]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    print(f"compiled {len(work)} candidates in {time.perf_counter() - began:.0f} s", flush=True)
    for op in asked.only:
        for width in asked.widths:
            each = Forked.Process(target=profile, args=(op, width, asked.shape))
            each.start()
            each.join()
    tune(work, asked.shape)


if __name__ == "__main__":
    main()
