"""The persistent recurrence in Triton against our CUDA C++: what the portable compiler would cost.

    python benchmarks/recurrent_triton.py                  # on an NVIDIA GPU: a table, forward, microseconds per step
    python benchmarks/recurrent_triton.py --cells lstm --widths 256 1024 --batches 16

The same idea with the same tools: the blocks of a cooperative launch keep their columns of U, hand states to each other
through global memory, and count who is done. Triton's side is tried in all of its `TILES` that fit, and writes the
outputs and nothing else; ours is the plan of the table and also keeps what a backward reads. Both are compared with the
equation in float64, then timed alone, in turns: no product before or after, no autograd. Every wait is bounded.

B batch, T time, D width, K a share of the width.
"""

import os
import statistics
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from multiprocessing import get_context
from typing import Any, NamedTuple

import torch

try:
    import triton
    import triton.language as tl
except ImportError:
    raise SystemExit("this needs Triton, which comes with PyTorch for CUDA: pip install triton") from None
from command_line import need_gpu, options, positive, write
from recurrent_tune import draw, errors, right_results, run_once
from torch import Tensor

from statewise.kernels.gpu import gpu_of
from statewise.kernels.persistent.driver import kernel
from statewise.kernels.persistent.plan import GATES, Cell
from statewise.kernels.persistent.stall import raise_if_stalled
from statewise.kernels.persistent.table import plans
from statewise.kernels.with_triton import FUSED

CELLS: tuple[Cell, ...] = ("tanh", "gru", "lstm")
SHORT, STEPS, ROUNDS, PATIENCE = 9, 256, 5, 20_000_000
TOLERANCE = 0.02  # that of `recurrent_tune.py`


class Tile(NamedTuple):
    """`units` and batch `rows` of a program; `shares` of the width that are summed apart, by different warps."""

    units: int
    rows: int
    shares: int
    warps: int

    def grid(self, width: int, batch: int) -> tuple[int, int]:
        return width // self.units, -(-batch // self.rows)


TILES = [
    Tile(units, rows, shares, warps)
    for units, rows, shares, warps in product((16, 32, 64), (16, 64, 128), (1, 4, 8), (4, 8))
    if shares == 1 or (shares == warps and rows == 16)  # many rows keep all warps busy without
]


@triton.jit
def _tanh(x):
    return 2 * tl.sigmoid(2 * x) - 1


@triton.jit
def _share(u, gate, units, k, D: tl.constexpr):
    """Columns of one gate's matrix: [shares, K, units]."""
    return tl.load(u + (gate * D + units)[None, None, :] * D + k[:, :, None])


@triton.jit
def _product(h, matrix):
    """[rows, units], the shares summed; where there is but one, by the instructions for large products."""
    if h.shape[0] == 1:
        rows: tl.constexpr = h.shape[1]
        width: tl.constexpr = h.shape[2]
        units: tl.constexpr = matrix.shape[2]
        return tl.dot(tl.reshape(h, (rows, width)), tl.reshape(matrix, (width, units)))
    return tl.sum(tl.dot(h, matrix), 0)


@triton.jit(do_not_specialize=["T", "B"])
def _recurrence(
    a, u, b_u, c0, y, counters, alarm, T, B,
    GATES: tl.constexpr, D: tl.constexpr, UNITS: tl.constexpr, ROWS: tl.constexpr, SHARES: tl.constexpr,
    PATIENCE: tl.constexpr,
):  # fmt: skip
    """`y` holds the first state in front; the moments after it are written."""
    K: tl.constexpr = D // SHARES
    units = tl.program_id(0) * UNITS + tl.arange(0, UNITS)
    rows = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    k = tl.arange(0, SHARES)[:, None] * K + tl.arange(0, K)[None, :]
    real = (rows < B)[:, None]
    here = rows[:, None] * D + units[None, :]
    everything = rows[None, :, None] * D + k[:, None, :]
    there = (rows < B)[None, :, None]
    m0 = _share(u, 0, units, k, D)
    if GATES > 1:
        m1 = _share(u, 1, units, k, D)
        m2 = _share(u, 2, units, k, D)
        own = tl.load(y + here, real, 0.0).to(tl.float32)
    if GATES > 3:
        m3 = _share(u, 3, units, k, D)
        c = tl.load(c0 + here, real, 0.0)
    if GATES == 3:
        inner = tl.load(b_u + units)[None, :]
    for t in range(T):
        x = a + (t * B + rows)[:, None].to(tl.int64) * (GATES * D) + units[None, :]
        a0 = tl.load(x, real, 0.0).to(tl.float32)
        if GATES > 1:
            a1 = tl.load(x + D, real, 0.0).to(tl.float32)
            a2 = tl.load(x + 2 * D, real, 0.0).to(tl.float32)
        if GATES > 3:
            a3 = tl.load(x + 3 * D, real, 0.0).to(tl.float32)
        if t > 0:
            counter = counters + tl.program_id(1) * T + t - 1
            arrived = tl.atomic_add(counter, 0, sem="acquire", scope="gpu")
            asked = 0
            while (arrived < D // UNITS) & (asked < PATIENCE):
                arrived = tl.atomic_add(counter, 0, sem="acquire", scope="gpu")
                asked += 1
            if asked == PATIENCE:
                tl.store(alarm, 1)
        before = y + t.to(tl.int64) * B * D
        h = tl.load(before + everything, there, 0.0, cache_modifier=".cg")
        s0 = a0 + _product(h, m0)
        if GATES == 1:
            new = _tanh(s0)
        if GATES == 3:
            z = tl.sigmoid(a1 + _product(h, m1))
            n = _tanh(a2 + tl.sigmoid(s0) * (_product(h, m2) + inner))
            new = n + z * (own - n)
            own = new
        if GATES == 4:
            f = tl.sigmoid(a1 + _product(h, m1))
            c = f * c + tl.sigmoid(s0) * _tanh(a2 + _product(h, m2))
            new = tl.sigmoid(a3 + _product(h, m3)) * _tanh(c)
        tl.store(before + B * D + here, new.to(y.dtype.element_ty), real)
        tl.debug_barrier()
        tl.atomic_add(counters + tl.program_id(1) * T + t, 1, sem="release", scope="gpu")


def settings(tile: Tile, cell: Cell, width: int) -> dict[str, Any]:
    """What a program is compiled for."""
    shape = {"GATES": GATES[cell], "D": width, "UNITS": tile.units, "ROWS": tile.rows, "SHARES": tile.shares}
    how = {"num_warps": tile.warps, "num_stages": 1, "launch_cooperative_grid": True}
    return {**shape, "PATIENCE": PATIENCE, **how, **FUSED}


def run_tile(tile: Tile, cell: Cell, data: dict[str, Tensor], time: int) -> tuple[Tensor, float]:
    """The outputs behind the first state, and microseconds a step."""
    batch, width = data["h"].shape
    grid = tile.grid(width, batch)
    y = torch.full((time + 1, batch, width), torch.nan, dtype=torch.bfloat16, device="cuda")
    y[0] = data["h"]
    counters = torch.zeros(grid[1], time, dtype=torch.int32, device="cuda")
    alarm = torch.zeros(1, dtype=torch.int32, device="cuda")
    given = data["a"], data["u"], data["b_u"], data["c"], y, counters, alarm, time, batch
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda._sleep(1_000_000)  # so that the launch itself is not in the time
    begin.record()
    _recurrence[grid](*given, **settings(tile, cell, width))
    end.record()
    torch.cuda.synchronize()
    if alarm.item():
        raise RuntimeError("its blocks waited in vain for each other")
    return y, begin.elapsed_time(end) * 1e3 / time


def error(found: Tensor, right: Tensor) -> float:
    return float((found.double() - right).norm() / right.norm())


def fitting(cell: Cell, width: int, batch: int) -> list[Tile]:
    """Those whose blocks run at once, with their matrices and the states that they multiply in the shared memory."""
    gpu, found = gpu_of(0), []
    for tile in TILES:
        across, down = tile.grid(width, batch)
        held = (GATES[cell] * tile.units + tile.rows) * width * 2
        lawful = width % tile.units == 0 and width // tile.shares >= 16 and (tile.rows == 16 or tile.rows < 2 * batch)
        if lawful and across * down <= gpu.multiprocessors and held <= gpu.shared_bytes:
            found.append(tile)
    return found


def compile_one(shape: tuple[Cell, int, Tile]) -> None:
    """Into Triton's cache; what does not fit is found out again by whoever runs it."""
    cell, width, tile = shape
    data = draw(cell, width, 1, 1)
    whole = torch.zeros(1, dtype=torch.int32, device="cuda")
    given = data["a"], data["u"], data["b_u"], data["c"], data["dy"], whole, whole, 1, 1
    _recurrence.warmup(*given, grid=(1,), **settings(tile, cell, width))


def compile_all(shapes: list[tuple[Cell, int, int]]) -> None:
    """On all cores: there are hundreds of programs, a second or two each."""
    given = dict.fromkeys((cell, width, tile) for cell, width, batch in shapes for tile in fitting(cell, width, batch))
    with ProcessPoolExecutor(max(1, len(os.sched_getaffinity(0)) - 1), get_context("spawn")) as pool:
        list(pool.map(compile_one, given))
    print(f"{len(given)} programs\n", flush=True)


def compare(cell: Cell, width: int, batch: int) -> dict[str, Any] | None:
    pair = plans(cell, width=width, batch=batch, gpu=gpu_of(0))
    if pair is None:
        return None
    small, large = (draw(cell, width, batch, steps) for steps in (SHORT, STEPS))
    ends_B = torch.full((batch,), SHORT, dtype=torch.int32, device="cuda")
    right = right_results(cell, small, ends_B)
    loaded = kernel(pair[0], half=False, device=0)
    ours = max(errors(pair[0], run_once(loaded, small, SHORT, batch, {}, ends_B), right, small).values())
    row: dict[str, Any] = {"cell": cell, "width": width, "batch": batch, "plan": pair[0].name, "error": ours}
    best: tuple[float, Tile, float] | None = None
    for tile in fitting(cell, width, batch):
        try:
            found = error(run_tile(tile, cell, small, SHORT)[0][1:], right["y"])
            if found > TOLERANCE:
                raise RuntimeError(f"{tile}: an error of {found:.3f}")
            once = min(run_tile(tile, cell, large, STEPS)[1] for _ in range(2))
        except triton.runtime.errors.OutOfResources:
            continue
        if best is None or once < best[0]:
            best = once, tile, found
    if best is None:
        return row
    row |= {"tile": list(best[1]), "its error": best[2]}
    times: dict[str, list[float]] = {"ours": [], "Triton": []}
    for _ in range(ROUNDS):
        times["ours"].append(run_once(loaded, large, STEPS, batch, {}, None)["microseconds"].item())
        times["Triton"].append(run_tile(best[1], cell, large, STEPS)[1])
    raise_if_stalled(wait=True)
    return row | {name: round(statistics.median(values), 3) for name, values in times.items()}


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--cells", nargs="+", choices=CELLS, default=list(CELLS))
    parser.add_argument("--widths", type=positive, nargs="+", default=[128, 256, 512, 1024])
    parser.add_argument("--batches", type=positive, nargs="+", default=[1, 16, 64, 256])
    chosen = parser.parse_args()
    need_gpu()
    shapes = list(product(chosen.cells, chosen.widths, chosen.batches))
    compile_all(shapes)
    print("| cell | width | batch | ours | Triton | ratio | its tile: units, rows, shares, warps | errors |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    rows = []
    for cell, width, batch in shapes:
        row = compare(cell, width, batch)
        if row is None:
            print(f"| {cell} | {width} | {batch} | – | | | | |", flush=True)
            continue
        rows.append(row)
        cells = [cell, str(width), str(batch), "", "no tile fits", "", "", ""]
        if "tile" in row:
            tile = ", ".join(map(str, row["tile"]))
            ratio = f"{row['Triton'] / row['ours']:.2f}"
            cells[3:] = [f"{row['ours']:.2f}", f"{row['Triton']:.2f}", ratio, tile]
            cells.append(f"{row['error']:.1e}, {row['its error']:.1e}")
        print("| " + " | ".join(cells) + " |", flush=True)
    ratios = [row["Triton"] / row["ours"] for row in rows if "tile" in row]
    if ratios:
        mean = statistics.geometric_mean(ratios)
        print(f"\n{len(ratios)} shapes: geometric mean {mean:.2f}, least {min(ratios):.2f}.")
    write(chosen.json, rows)


if __name__ == "__main__":
    main()
