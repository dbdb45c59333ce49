"""Check, then time the gated delta rule and linear attention with a decay, forward and backward, in bfloat16.

    python benchmarks/linear_recurrence.py [--only OP ...] [--shapes 8x2048x8x64 ...] [--lengths | --layer] [--search N]

If `flash-linear-attention` is installed, it runs too. Times are medians in milliseconds: replays of a CUDA graph, and
calls from Python without waiting in between. Errors are the largest of outputs, last state and all gradients against
the chunked implementation in float64, relative to the norm of each, on the first and the last row. `--lengths` checks
short and odd lengths and ragged rows in place of timing. `--layer` times whole gated-delta layers of width 768 (12
heads, convolution, gate) on 16 rows of 1,024 steps, weights and inputs in bfloat16. `--search N` lets fla try N
configurations of each kernel in place of all, which takes minutes.

fla refuses its backward on Hopper with Triton 3.4 to 3.7.0, where its results were wrong (its issue 640). For the time
alone that check is taken out here; its error is in the table.
"""

import argparse
import functools
import gc
import itertools
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from command_line import console, need_gpu, options, positive, write
from rich.table import Table
from torch import Tensor

from statewise.kernels.gated_delta import chunked as delta_chunked
from statewise.kernels.gated_delta import gated_delta
from statewise.kernels.linear_attention import chunked as linear_chunked
from statewise.kernels.linear_attention import linear_attention
from statewise.mixers import GatedDelta

Row = dict[str, Any]
Run = Callable[[list[Tensor], Tensor | None], tuple[Tensor, Tensor]]
CUDA = torch.device("cuda")
SHAPES = [
    *((rows, length, 8, 64) for rows, length in ((8, 2048), (8, 1024), (1, 16384), (32, 2048), (64, 2048))),
    *((rows, length, 8, 128) for rows, length in ((8, 2048), (8, 1024), (1, 16384), (32, 2048))),
]
LENGTHS = (1, 63, 64, 65, 1000, 2048)
WIDTHS = (8, 20, 32, 33, 64, 100, 128)  # of keys; values are one wider, as in a layer that sums its keys too


def shape_of(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("x"))


def case(op: str, batch: int, length: int, heads: int, width: int, more: int = 0) -> list[Tensor]:
    """Queries, keys and values in bfloat16, then one number a head or two, and the state. Values are `more` wider."""
    generator = torch.Generator().manual_seed(length + width)

    def noise(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    q, k, v = (noise(batch, length, heads, size) for size in (width, width, width + more))
    gates = [-0.1 * noise(batch, length, heads).abs()]
    if op == "gated delta":
        q, k = (torch.nn.functional.normalize(part, dim=-1) for part in (q, k))
        gates.insert(0, torch.sigmoid(noise(batch, length, heads)).bfloat16())
    else:
        q, k = (part * width**-0.5 for part in (q, k))
    return [*(part.bfloat16() for part in (q, k, v)), *gates, noise(batch, heads, width, width + more)]


def wanted_sum(inputs: Sequence[Tensor]) -> list[Tensor]:
    """What outputs and the last state are multiplied by in the sum whose gradients are taken."""
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(part.shape, generator=generator).bfloat16() for part in (inputs[2], inputs[-1])]


def ours(op: str) -> Run:
    form = gated_delta if op == "gated delta" else linear_attention
    return lambda inputs, lengths_B: form(*inputs, lengths_B)


def exact(op: str) -> Run:
    form = delta_chunked.gated_delta if op == "gated delta" else linear_chunked.linear_attention
    return lambda inputs, lengths_B: form(tuple(inputs[:-1]), inputs[-1], lengths_B)


def peer(op: str) -> Run | None:
    if find_spec("fla") is None:
        return None
    import_module("fla.ops.common.chunk_o").TRITON_ABOVE_3_7_1 = True  # see the top of this file
    if op == "gated delta":
        delta = import_module("fla.ops.gated_delta_rule").chunk_gated_delta_rule

        def run(inputs: list[Tensor], lengths_B: Tensor | None) -> tuple[Tensor, Tensor]:
            q, k, v, beta, g, s = inputs
            return delta(q, k, v, g, beta, scale=1.0, initial_state=s, output_final_state=True)  # type: ignore[no-any-return]

        return run
    linear = import_module("fla.ops.simple_gla").chunk_simple_gla

    def walk(inputs: list[Tensor], lengths_B: Tensor | None) -> tuple[Tensor, Tensor]:
        q, k, v, g, s = inputs
        return linear(q, k, v, g, scale=1.0, initial_state=s, output_final_state=True)  # type: ignore[no-any-return]

    return walk


def limit_search(most: int) -> None:
    """Of each kernel's configurations, so many at equal distances, each timed for 20 ms."""
    tuner_type = import_module("triton.runtime.autotuner").Autotuner
    for tuner in [each for each in gc.get_objects() if isinstance(each, tuner_type)]:
        count = len(tuner.configs)
        tuner.configs = [tuner.configs[count * n // min(most, count)] for n in range(min(most, count))]
        do_bench = import_module("triton.testing").do_bench
        tuner._do_bench = functools.partial(do_bench, warmup=5, rep=20)


def layers() -> dict[str, Callable[[], Any]]:
    """Forward and backward of a whole layer: ours, and fla's where it is installed."""
    mixer = GatedDelta(768, heads=12).to(CUDA, torch.bfloat16)
    made: dict[str, tuple[torch.nn.Module, Callable[[Tensor], Tensor]]] = {"ours": (mixer, lambda x: mixer(x)[0])}
    if find_spec("fla") is not None:
        import_module("fla.ops.common.chunk_o").TRITON_ABOVE_3_7_1 = True  # see the top of this file
        options = {"hidden_size": 768, "head_dim": 64, "num_heads": 12, "expand_v": 1}
        theirs = import_module("fla.layers").GatedDeltaNet(**options).to(CUDA, torch.bfloat16)
        made["fla"] = (theirs, lambda x: theirs(x)[0])
    x_BTD = torch.randn(16, 1024, 768, generator=torch.Generator().manual_seed(0)).to(CUDA, torch.bfloat16)
    x_BTD.requires_grad_()
    wanted_BTD = torch.randn_like(x_BTD)

    def both(module: torch.nn.Module, run: Callable[[Tensor], Tensor]) -> Callable[[], Any]:
        wanted = [x_BTD, *module.parameters()]
        return lambda: torch.autograd.grad(run(x_BTD), wanted, wanted_BTD, allow_unused=True)

    return {name: both(*each) for name, each in made.items()}


def of_layers() -> Row:
    runs: dict[str, Callable[[], Any]] = {}
    for name, go in layers().items():
        runs |= {f"{name} graph": in_graph(go), f"{name} call": go}
    return with_ratios({"op": "gated-delta layer", "shape": "16x1024x768"} | medians(runs))


def with_ratios(row: Row) -> Row:
    if "fla graph" in row:
        row |= {f"{way} ratio": row[f"fla {way}"] / row[f"ours {way}"] for way in ("graph", "call")}
    return row


def both_ways(run: Run, inputs: Sequence[Tensor], lengths_B: Tensor | None = None) -> Callable[[], list[Tensor]]:
    """Outputs, the last state, and the gradients of a fixed random sum of both, on the GPU."""
    leaves = [part.to(CUDA, copy=True).requires_grad_() for part in inputs]
    wanted = [part.to(CUDA) for part in wanted_sum(inputs)]
    of_dtype: dict[torch.dtype, list[Tensor]] = {}

    def go() -> list[Tensor]:
        results = run(leaves, lengths_B)
        dtype = results[0].dtype
        if dtype not in of_dtype:
            of_dtype[dtype] = [part.to(result) for part, result in zip(wanted, results, strict=True)]
        return [*results, *torch.autograd.grad(results, leaves, of_dtype[dtype])]

    return go


def errors(found: Sequence[Tensor], expected: Sequence[Tensor], rows: list[int]) -> list[float]:
    pairs = zip(found, expected, strict=True)
    ratios = [
        float((a[rows].detach().to(b.device, torch.float64) - b).norm() / b.norm().clamp(min=1e-12)) for a, b in pairs
    ]
    return [ratio if ratio == ratio else float("inf") for ratio in ratios]


def reference(
    op: str, inputs: list[Tensor], rows: list[int], lengths_B: Tensor | None = None, *, device: torch.device = CUDA
) -> list[Tensor]:
    leaves = [part[rows].to(device, torch.float64).requires_grad_() for part in inputs]
    results = exact(op)(leaves, None if lengths_B is None else lengths_B[rows])
    wanted = [part[rows].to(device, torch.float64) for part in wanted_sum(inputs)]
    return [*(part.detach() for part in results), *torch.autograd.grad(results, leaves, wanted)]


def in_graph(go: Callable[[], Any]) -> Callable[[], None]:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            go()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        go()
    return graph.replay


def medians(runs: dict[str, Callable[[], Any]], repeats: int = 7, calls: int = 10) -> dict[str, float]:
    """Milliseconds a call, by turns."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(repeats + 2):
        for name, run in runs.items():
            torch.cuda.synchronize()
            began = time.perf_counter()
            for _ in range(calls):
                run()
            torch.cuda.synchronize()
            if turn > 1:
                times[name].append(1e3 * (time.perf_counter() - began) / calls)
    return {name: statistics.median(kept) for name, kept in times.items()}


def timed(op: str, shape: tuple[int, ...]) -> Row:
    inputs = case(op, *shape)
    rows = sorted({0, shape[0] - 1})
    expected = reference(op, inputs, rows)
    row: Row = {"op": op, "shape": "x".join(map(str, shape))}
    runs: dict[str, Callable[[], Any]] = {}
    for name, run in (("ours", ours(op)), ("fla", peer(op))):
        if run is None:
            continue
        go = both_ways(run, inputs)
        row[f"{name} error"] = max(errors(go(), expected, rows))
        runs |= {f"{name} graph": in_graph(go), f"{name} call": go}
    del expected
    return with_ratios(row | medians(runs))


def checked(op: str, length: int, width: int, ragged: bool) -> Row:
    inputs = case(op, 4, length, 3, width, more=1)
    lengths_B = torch.tensor([length, 0, length // 2, max(1, length - 1)], device=CUDA) if ragged else None
    expected = reference(op, inputs, list(range(4)), lengths_B)
    each = errors(both_ways(ours(op), inputs, lengths_B)(), expected, list(range(4)))
    return {"op": op, "shape": f"length {length}, width {width}{', ragged' if ragged else ''}", "ours error": max(each)}


def found(asked: argparse.Namespace) -> Iterator[Row]:
    if find_spec("fla") is not None and not asked.lengths:
        import_module("fla.layers" if asked.layer else "fla.ops")
        if asked.search:
            limit_search(asked.search)
    if asked.layer:
        yield of_layers()
    elif asked.lengths:
        cases = itertools.product(asked.only, LENGTHS, WIDTHS, (False, True))
        yield from itertools.starmap(checked, cases)
    else:
        yield from (timed(op, shape) for shape in asked.shapes for op in asked.only)


def shown(rows: list[Row]) -> Table:
    names = list(dict.fromkeys(name for row in rows for name in row))
    table = Table(*names)
    for row in rows:
        cells = []
        for name in names:
            value = row.get(name, "")
            digits = ".1e" if "error" in name else ".2f" if "ratio" in name else ".3f"
            cells.append(f"{value:{digits}}" if isinstance(value, float) else str(value))
        table.add_row(*cells)
    return table


def main() -> None:
    parser = options(__doc__)
    ops = ["gated delta", "linear attention"]
    parser.add_argument("--only", nargs="+", choices=ops, default=ops)
    parser.add_argument("--shapes", nargs="+", type=shape_of, default=SHAPES, metavar="BxTxHxK")
    parser.add_argument("--lengths", action="store_true", help="errors on short, odd and ragged lengths, no times")
    parser.add_argument("--layer", action="store_true", help="whole layers")
    parser.add_argument("--search", type=positive, help="configurations that fla tries of each kernel")
    asked = parser.parse_args()
    need_gpu()
    rows: list[Row] = []
    for row in found(asked):
        print(row, flush=True)
        rows.append(row)
    console().print(torch.__version__, torch.cuda.get_device_name(), shown(rows))
    for way in ("graph", "call"):
        ratios = [row[f"{way} ratio"] for row in rows if f"{way} ratio" in row]
        if ratios:
            mean = statistics.geometric_mean(ratios)
            console().print(f"{way}: {mean:.2f} times fla in the geometric mean, at least {min(ratios):.2f}")
    write(asked.json, rows)


if __name__ == "__main__":
    main()
