"""Check, then time the gated delta rule and linear attention with a decay, forward and backward, in bfloat16.

    python benchmarks/linear_recurrence.py [--only OP ...] [--shapes 8x2048x8x64 ...] [--lengths] [--json FILE]

If `flash-linear-attention` is installed, it runs too. Times are medians in milliseconds: replays of a CUDA
graph, and calls from Python without waiting in between. Errors are the largest of outputs, last state and all
gradients against the chunked implementation in float64, relative to the norm of each, on the first and the last row. `--lengths`
checks short and odd lengths and ragged rows in place of timing.

fla refuses its backward on Hopper with Triton 3.4 to 3.7.0, where its results were wrong (its issue 640). For the time
alone that check is taken out here; its error is in the table.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from command_line import console, need_gpu, options, write
from rich.table import Table
from torch import Tensor

from statewise.kernels.gated_delta import chunked as delta_chunked
from statewise.kernels.gated_delta import gated_delta
from statewise.kernels.linear_attention import chunked as linear_chunked
from statewise.kernels.linear_attention import linear_attention

Row = dict[str, Any]
Run = Callable[[list[Tensor], Tensor | None], tuple[Tensor, Tensor]]
CUDA = torch.device("cuda")
SHAPES = [
    *((rows, length, 8, 64) for rows, length in ((32, 256), (8, 1024), (8, 2048), (1, 16384), (4, 8192), (64, 2048))),
    *((rows, length, 8, 128) for rows, length in ((8, 1024), (8, 2048), (1, 16384), (32, 2048))),
]
LENGTHS = (1, 63, 64, 65, 1000, 2048)


def shape_of(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("x"))


def case(op: str, batch: int, length: int, heads: int, width: int) -> list[Tensor]:
    """Queries, keys and values in bfloat16, then one number a head or two, and the state."""
    generator = torch.Generator(CUDA).manual_seed(length + width)

    def noise(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, device=CUDA)

    q, k, v = (noise(batch, length, heads, width) for _ in range(3))
    gates = [-0.1 * noise(batch, length, heads).abs()]
    if op == "gated delta":
        q, k = (torch.nn.functional.normalize(part, dim=-1) for part in (q, k))
        gates.insert(0, torch.sigmoid(noise(batch, length, heads)).bfloat16())
    else:
        q, k = (part * width**-0.5 for part in (q, k))
    return [*(part.bfloat16() for part in (q, k, v)), *gates, noise(batch, heads, width, width)]


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


def both_ways(run: Run, inputs: Sequence[Tensor], lengths_B: Tensor | None = None) -> Callable[[], list[Tensor]]:
    """Outputs, the last state, and the gradients of a fixed random sum of both."""
    leaves = [part.detach().clone().requires_grad_() for part in inputs]
    with torch.no_grad():
        shapes = [part.shape for part in (inputs[2], inputs[-1])]
    generator = torch.Generator(CUDA).manual_seed(1)
    wanted = [torch.randn(shape, generator=generator, device=CUDA).to(torch.bfloat16) for shape in shapes]
    of_dtype: dict[torch.dtype, list[Tensor]] = {}

    def go() -> list[Tensor]:
        results = run(leaves, lengths_B)
        dtypes = results[0].dtype
        if dtypes not in of_dtype:
            of_dtype[dtypes] = [part.to(result) for part, result in zip(wanted, results, strict=True)]
        return [*results, *torch.autograd.grad(results, leaves, of_dtype[dtypes])]

    return go


def errors(found: Sequence[Tensor], expected: list[Tensor], rows: list[int]) -> list[float]:
    pairs = zip(found, expected, strict=True)
    ratios = [float((a[rows].detach().double() - b).norm() / b.norm().clamp(min=1e-12)) for a, b in pairs]
    return [ratio if ratio == ratio else float("inf") for ratio in ratios]


def reference(op: str, inputs: list[Tensor], rows: list[int], lengths_B: Tensor | None = None) -> list[Tensor]:
    batch = inputs[0].shape[0]
    chosen = [part[rows].double() for part in inputs]
    leaves = [part.requires_grad_() for part in chosen]
    results = exact(op)(leaves, None if lengths_B is None else lengths_B[rows])
    generator = torch.Generator(CUDA).manual_seed(1)
    wanted = [
        torch.randn((batch, *part.shape[1:]), generator=generator, device=CUDA).to(torch.bfloat16)[rows].double()
        for part in (inputs[2], inputs[-1])
    ]
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
    row |= medians(runs)
    if "fla graph" in row:
        row |= {f"{way} ratio": row[f"fla {way}"] / row[f"ours {way}"] for way in ("graph", "call")}
    return row


def checked(op: str, length: int, width: int, ragged: bool) -> Row:
    inputs = case(op, 4, length, 3, width)
    lengths_B = torch.tensor([length, 0, length // 2, max(1, length - 1)], device=CUDA) if ragged else None
    expected = reference(op, inputs, list(range(4)), lengths_B)
    row: Row = {"op": op, "shape": f"length {length}, width {width}{', ragged' if ragged else ''}"}
    for name, run in (("ours", ours(op)), ("fla", None if ragged else peer(op))):
        if run is not None:
            each = errors(both_ways(run, inputs, lengths_B)(), expected, list(range(4)))
            row[f"{name} error"] = max(each)
    return row


def shown(rows: list[Row]) -> Table:
    names = list(dict.fromkeys(name for row in rows for name in row))
    table = Table(*names)
    for row in rows:
        cells = []
        for name in names:
            value = row.get(name, "")
            text = f"{value:.1e}" if "error" in name else f"{value:.2f}" if "ratio" in name else f"{value:.3f}"
            cells.append(text if isinstance(value, float) else str(value))
        table.add_row(*cells)
    return table


def main() -> None:
    parser = options(__doc__)
    ops = ["gated delta", "linear attention"]
    parser.add_argument("--only", nargs="+", choices=ops, default=ops)
    parser.add_argument("--shapes", nargs="+", type=shape_of, default=SHAPES, metavar="BxTxHxK")
    parser.add_argument("--lengths", action="store_true", help="errors on short, odd and ragged lengths, no times")
    asked = parser.parse_args()
    need_gpu()
    rows: list[Row] = []
    for op in asked.only:
        if asked.lengths:
            cases = [(n, width, r) for r in (False, True) for width in (64, 128) for n in LENGTHS]
            found = (checked(op, *each) for each in cases)
        else:
            found = (timed(op, shape) for shape in asked.shapes)
        for row in found:
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
