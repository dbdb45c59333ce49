"""Recurrent layers on a GPU against cuDNN: errors, times, repeatability, concurrency.

    python benchmarks/recurrent.py --check             # every output and gradient against float64, and cuDNN's error
    python benchmarks/recurrent.py --time              # the grid of widths and batches, microseconds per step
    python benchmarks/recurrent.py --safe --seconds 60 # 100 equal repetitions; a minute with other work on the GPU
    python benchmarks/recurrent.py --check --as 8.0    # plans and code for an older GPU, on the one that is there
    python benchmarks/recurrent.py --report times.json # the tables of docs/performance.md from a written file
    python benchmarks/recurrent.py --kernel stepped …  # the same for one implementation, wherever it can run

Both sides run through autograd, allocation included, alternating in one process; times are medians over several rounds
of calls without a synchronisation between them, as in training; each side once more with autograd in the calling thread
(`torch.autograd.set_multithreading_enabled(False)`), which saves small layers a thread switch; and as a replayed CUDA
graph of the same calls, where cuDNN is the faster of bfloat16 and float16 (with `--precision float32`, float32). For
comparison there is a graph of only the cuBLAS products that an implementation with one product per step cannot avoid.
`--out FOLDER` receives the numbers as JSON.
"""

import argparse
import json
import math
import os
import statistics
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, get_args

import torch
from command_line import need_gpu, readable
from recurrent_case import CELLS, Case, draw, mixer, module_choice, precision, twin
from recurrent_check import WIDTHS, check
from recurrent_floor import products
from recurrent_safe import safe
from torch import Tensor, nn

from statewise.kernels import persistent
from statewise.kernels.choice import Implementation, force
from statewise.kernels.gpu import KNOWN

BATCHES, STEPS = (1, 16, 64, 256), 512


def rounds(runs: dict[str, Callable[[], object]], count: int, in_a_row: int) -> dict[str, float]:
    """Median microseconds a step of each, interleaved."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(count + 1):
        for name, run in runs.items():
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            run()
            begin.record()
            for _ in range(in_a_row):
                run()
            end.record()
            torch.cuda.synchronize()
            if turn:
                times[name].append(begin.elapsed_time(end) * 1e3 / in_a_row / STEPS)
    return {name: statistics.median(values) for name, values in times.items()}


def graphed(run: Callable[[], object]) -> Callable[[], object]:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()

    def replay() -> object:
        assert run  # a graph holds addresses: what it reads must stay as long as the graph
        return graph.replay()

    return replay


def training(
    call: Callable[[Tensor], Tensor], parameters: list[Tensor], x_TBI: Tensor, dy: Tensor
) -> Callable[[], object]:
    leaf = x_TBI.clone().requires_grad_()

    def run() -> object:
        return torch.autograd.grad(call(leaf), [leaf, *parameters], dy)

    return run


def unthreaded(run: Callable[[], object]) -> Callable[[], object]:
    """With its gradients made by the calling thread, and not by the one that autograd has for the GPU."""

    def alone() -> object:
        with torch.autograd.set_multithreading_enabled(False):
            return run()

    return alone


def reading(call: Callable[[Tensor], Tensor], x_TBI: Tensor) -> Callable[[], object]:
    def run() -> object:
        with torch.no_grad():
            return call(x_TBI)

    return run


PRECISIONS: dict[str, tuple[torch.dtype, bool]] = {
    "bfloat16": (torch.bfloat16, False),
    "float16": (torch.float16, False),
    "float32": (torch.float32, False),
    "tf32": (torch.float32, True),
}


def measure(rows: list[dict[str, Any]], options: argparse.Namespace) -> None:
    deadline = time.monotonic() + options.seconds
    dtype, tf32 = PRECISIONS[options.precision]
    for width in options.widths:
        for batch in options.batches:
            for cell in options.cells:
                if time.monotonic() > deadline:
                    print("out of time", flush=True)
                    return
                row: dict[str, Any] = {"cell": cell, "width": width, "batch": batch}
                case = Case(cell, width, batch, STEPS, width, dtype, tf32=tf32)
                wish = force(options.kernel) if options.kernel else nullcontext()
                try:
                    with precision(case), wish:
                        row |= measure_one(case)
                except Exception as error:
                    row["failed"] = repr(error)[:300]
                rows.append(row)
                print(json.dumps(row), flush=True)
                torch.cuda.empty_cache()


def measure_one(case: Case) -> dict[str, Any]:
    module = mixer(case)
    runs: dict[str, dict[str, Callable[[], object]]] = {"forward": {}, "training": {}}
    x_TBI, _, gradients = draw(case)
    dy = gradients[0]

    def mine(x: Tensor) -> Tensor:
        return module(x.transpose(0, 1))[0].transpose(0, 1)

    def cudnn(other: nn.RNNBase) -> Callable[[Tensor], Tensor]:
        return lambda x: other(x)[0]

    runs["training"]["ours"] = training(mine, list(module.parameters()), x_TBI, dy)
    runs["forward"]["ours"] = reading(mine, x_TBI)
    for several in runs.values():
        several["ours, graph"] = graphed(several["ours"])
    runs["training"]["ours, one thread"] = unthreaded(runs["training"]["ours"])
    others = [(torch.float32, case.precision)]
    if case.dtype != torch.float32:
        others = [(torch.bfloat16, "bf16"), (torch.float16, "fp16")]
    for dtype, name in others:
        other = twin(case._replace(dtype=dtype), module)
        their_x, their_dy = x_TBI.to(dtype), dy.to(dtype)
        train = training(cudnn(other), list(other.parameters()), their_x, their_dy)
        read = reading(cudnn(other), their_x)
        if name != "fp16":
            runs["training"]["eager"], runs["forward"]["eager"] = train, read
            runs["training"]["eager, one thread"] = unthreaded(train)
        runs["training"][f"graph {name}"], runs["forward"][f"graph {name}"] = graphed(train), graphed(read)
    for way, run in products(case, x_TBI).items():
        runs[way]["products"] = graphed(run)
    row: dict[str, Any] = {"choice": module_choice(module, case)}
    for way, several in runs.items():
        row[way] = {name: round(us, 3) for name, us in rounds(several, 5, 2).items()}
    persistent.raise_if_stalled(wait=True)
    return row


def report(rows: list[dict[str, Any]]) -> None:
    """Markdown: microseconds a step and ratios, geometric means, worst cells."""
    for way in ("training", "forward"):
        eager, alone, best, both, floor, hostless = [], [], [], [], [], []
        title = {"training": "forward + backward", "forward": "forward alone, no gradient"}[way]
        print(f"\n### {title}\n")
        print("| cell | width | batch | runs | ours | in a graph | cuDNN | in a graph | products | × | × in graphs |")
        print("|---|---|---|---|---|---|---|---|---|---|---|")
        for row in sorted((r for r in rows if way in r), key=lambda r: list(CELLS).index(r["cell"])):
            us = row[way]
            fastest = min(value for name, value in us.items() if name.startswith("graph"))
            eager.append((us["eager"] / us["ours"], row))
            if "ours, one thread" in us:
                alone.append((us["eager, one thread"] / us["ours, one thread"], row))
            best.append((fastest / us["ours"], row))
            cells = [row["cell"], row["width"], row["batch"], row["choice"], f"{us['ours']:.2f}"]
            if "ours, graph" in us:
                both.append((fastest / us["ours, graph"], row))
                hostless.append((us["eager"] / us["ours, graph"], row))
                if "products" in us:
                    floor.append((us["products"] / us["ours, graph"], row))
            cells += [f"{us['ours, graph']:.2f}" if "ours, graph" in us else "", f"{us['eager']:.2f}", f"{fastest:.2f}"]
            cells.append(f"{us['products']:.2f}" if "products" in us else "")
            cells += [f"{eager[-1][0]:.1f}", f"{both[-1][0]:.2f}" if "ours, graph" in us else ""]
            print("| " + " | ".join(map(str, cells)) + " |")
        over = {"cuDNN, both eager": eager, "cuDNN, both eager, autograd in the calling thread": alone}
        over["cuDNN, ours in a graph"] = hostless
        over["cuDNN at its best in a graph, ours eager"] = best
        over |= {"cuDNN at its best, both in a graph": both, "the products alone, both in a graph": floor}
        for name in ("ours", "ours, one thread"):
            waits = [row[way][name] > 1.1 * row[way]["ours, graph"] for row in rows if name in row.get(way, {})]
            if waits:
                print(f"\n{name}: {sum(waits)} of {len(waits)} take over a tenth longer than in a graph.")
        for name, ratios in over.items():
            if ratios:
                mean = math.exp(statistics.fmean(math.log(ratio) for ratio, _ in ratios))
                low, row = min(ratios, key=lambda pair: pair[0])
                where = f"{row['cell']} {row['width']}x{row['batch']}"
                print(f"\nOver {name}: geometric mean {mean:.2f}, worst {low:.2f} ({where}), {len(ratios)} cells.")


def main() -> None:
    os.environ["STATEWISE_UNPROVEN"] = "1"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for mode in ("check", "time", "safe"):
        parser.add_argument(f"--{mode}", action="store_true")
    parser.add_argument("--report", type=readable)
    parser.add_argument("--widths", type=int, nargs="*", default=list(WIDTHS))
    parser.add_argument("--batches", type=int, nargs="*", default=list(BATCHES))
    parser.add_argument("--cells", nargs="*", default=list(CELLS), choices=list(CELLS))
    parser.add_argument("--precision", default="bfloat16", choices=list(PRECISIONS))
    parser.add_argument("--kernel", choices=get_args(Implementation), help="this form, in place of the fastest")
    parser.add_argument("--as", dest="capability", choices=[*KNOWN], help="an older compute capability to pretend")
    parser.add_argument("--seconds", type=float, default=600.0, help="at most for --time, and of company in --safe")
    parser.add_argument("--out", type=Path, default=Path())
    options = parser.parse_args()
    if options.report is not None:
        report(json.loads(options.report.read_text()))
        return
    if not (options.check or options.time or options.safe):
        parser.error("say what to do: --check, --time, --safe or --report FILE")
    need_gpu()
    if options.capability is not None:
        os.environ["STATEWISE_CAPABILITY"] = options.capability
    torch.backends.cudnn.benchmark = False
    print(
        f"# torch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}, {torch.cuda.get_device_name()}",
        flush=True,
    )
    steps: dict[str, Callable[[list[dict[str, Any]]], None]] = {
        "check": lambda rows: check(rows, kernel=options.kernel),
        "safe": lambda rows: safe(rows, options.seconds),
        "time": lambda rows: measure(rows, options),
    }
    for name, step in steps.items():
        if getattr(options, name):
            rows: list[dict[str, Any]] = []
            try:
                step(rows)
            finally:
                options.out.mkdir(parents=True, exist_ok=True)
                (options.out / f"recurrent_{name}.json").write_text(json.dumps(rows))
            if name == "time":
                report(rows)


if __name__ == "__main__":
    main()
