"""The kernels of a decoding step on a GPU, against PyTorch's ops for the same, microseconds.

    python benchmarks/decode_step.py [--json FILE]

Shapes of GPT-2 small in bfloat16. Each side is captured as a CUDA graph of many calls, as in decoding; the two are
replayed in turn, medians. `error`: the largest difference from float64, relative to its norm, next to PyTorch's own.
"""

import argparse
import json
import statistics
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from command_line import console, need_gpu
from rich.table import Table
from torch import Tensor
from torch.nn import functional as F

from statewise.kernels import few_rows
from statewise.kernels.attention import attend_, with_room

CALLS, TURNS = 20, 9
HEADS, WIDTH = 12, 64
LISTS = ((1, 64, 256), (64, 64, 256), (1, 900, 1024), (64, 900, 1024), (1, 15_000, 16_384))  # batch, in use, slots
MATRICES = ((768, 2304), (768, 768), (768, 3072), (3072, 768), (768, 50_257))  # from, to
ROWS = (1, 4, 16, 64)


def noise(*shape: int, seed: int) -> Tensor:
    drawn = torch.randn(*shape, generator=torch.Generator("cuda").manual_seed(seed), device="cuda")
    return drawn.bfloat16()


def captured(work: Callable[[], Any]) -> torch.cuda.CUDAGraph:
    aside = torch.cuda.Stream()
    with torch.cuda.stream(aside):
        for _ in range(3):
            work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            work()
    return graph


def medians(works: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Microseconds a call of each, interleaved."""
    graphs = {name: captured(work) for name, work in works.items()}
    times: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(TURNS + 1):
        for name, graph in graphs.items():
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            graph.replay()
            end.record()
            torch.cuda.synchronize()
            if turn:
                times[name].append(1e3 * begin.elapsed_time(end) / CALLS)
    return {name: statistics.median(kept) for name, kept in times.items()}


def error(found: Tensor, exact: Tensor) -> float:
    return float((found.double() - exact).norm() / exact.norm())


@torch.no_grad()
def attention() -> Iterator[dict[str, Any]]:
    for batch, used, slots in LISTS:
        q, k, v = (noise(batch, HEADS, WIDTH, seed=seed) for seed in range(3))
        lists = [with_room(noise(batch, slots, HEADS, WIDTH, seed=seed), slots) for seed in (3, 4)]
        length_B = torch.full((batch,), used, device="cuda")
        options: dict[str, Any] = {"slopes_H": None, "scale": WIDTH**-0.5}
        works = {
            name: partial(attend_, q, k, v, *lists, length_B, **options, wish=wish)
            for name, wish in (("ours", "auto"), ("torch", "fused"))
        }
        exact, _ = attend_(
            *(part.double() for part in (q, k, v)),
            *(part.double() for part in lists),
            length_B,
            **options,
            wish="naive",
        )
        errors = {f"{name}_error": error(work()[0], exact) for name, work in works.items()}
        size = f"{batch} rows, {used} of {slots} slots in use"
        yield {"op": "a step of attention", "size": size, **medians(works), **errors}


@torch.no_grad()
def products() -> Iterator[dict[str, Any]]:
    for rows in ROWS:
        for inputs, outputs in MATRICES:
            x, w, b = noise(rows, inputs, seed=0), noise(outputs, inputs, seed=1), noise(outputs, seed=2)
            w = w * inputs**-0.5
            works = {"ours": partial(few_rows.product, x, w, b, "none", None), "torch": partial(F.linear, x, w, b)}
            exact = F.linear(x.double(), w.double(), b.double())
            errors = {f"{name}_error": error(work(), exact) for name, work in works.items()}
            size = f"{rows} rows, {inputs} to {outputs}"
            yield {"op": "a product", "size": size, **medians(works), **errors}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    need_gpu()
    table = Table(title=f"A step of writing, bfloat16, {torch.cuda.get_device_name()}", title_justify="left")
    for heading in ("op", "size", "ours, µs", "PyTorch, µs", "ratio", "error", "PyTorch's error"):
        table.add_column(heading, justify="left" if heading in ("op", "size") else "right")
    rows = []
    for part in (attention, products):
        for row in part():
            rows.append(row)
            figures = (f"{row['ours']:.2f}", f"{row['torch']:.2f}", f"{row['torch'] / row['ours']:.2f}")
            table.add_row(row["op"], row["size"], *figures, f"{row['ours_error']:.1e}", f"{row['torch_error']:.1e}")
    console().print(table)
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
