"""Which plan takes which shape: the fastest of those tried on an H200. What has none, another form takes.

`h200.csv` has them, as `benchmarks/recurrent_tune.py --table` prints them. A shape that has a plan one way alone is
taken that way alone, by `stepped`. An entry serves its width and every batch up to its own that no smaller entry
serves.

Other GPUs, and Hopper GPUs with too few multiprocessors for an entry, have the first of the plans that are proposed
by a rough model of what a step costs, in cycles, from the limits of the GPU alone; if that is so far ahead of a launch
a step that the model may be wrong by a lot. The benchmark lets an H200 decide among them.
"""

import csv
from collections.abc import Callable, Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

from statewise.kernels.gpu import Gpu
from statewise.kernels.persistent.plan import GATES, Cell, Direction, Kind, Plan

Proposal = tuple[float, Plan]  # cycles a step
WIDTHS, BATCHES = (128, 256, 512, 768, 1024, 1536, 2048), (1, 16, 64, 256)
_L2_BYTES = 22  # a cycle and multiprocessor, when all of them read
# Two launches a step each way are what cuDNN needs where it has no persistent kernel: some 8 µs, 12,000 cycles.
_SAFE_CYCLES = 7000


def _registers_left(plan: Plan, others: float) -> int:
    """Steps of 16 along k that fit beside the other values of a thread."""
    most = min(255, 65536 // plan.threads)
    return int(max(0, min(plan.steps, (most - 40 - others) // (4 * plan.matrix_tiles))))


def clustered(cell: Cell, direction: Direction, width: int, batch: int, gpu: Gpu) -> Iterator[Proposal]:
    gates = GATES[cell]
    for blocks, room in gpu.clusters.items():
        for warps in (4, 6, 8, 12, 16):
            for tiles in (1, 2, 3, 4, 6, 8):
                if -(-batch // (8 * tiles)) > room or width % blocks:
                    continue
                plan = Plan("cluster", cell, direction, width, blocks, width, tiles, warps, 0)
                if plan.matrix_tiles < 1 or plan.steps < 2:
                    continue
                products = plan.matrix_tiles * tiles
                sums = 1 if products >= 4 else 2 if products >= 2 else 4
                own = products * (4 if gates == 1 else 1)
                if direction == "backward":
                    own = max(1, width // blocks * 8 * tiles // plan.threads)
                others = 4 * sums * products + 4 * tiles + own * (1.2 * gates + 3 if direction == "forward" else 9)
                plan = plan._replace(kept=_registers_left(plan, others))
                if not plan.fits(gpu):
                    continue
                busy = plan.steps * products * warps / 4 * gpu.product_cycles
                arithmetic = max(busy, plan.steps / sums * 18 + 30)
                memory = 4 * warps * ((plan.steps - plan.kept) * plan.matrix_tiles + plan.steps * tiles / 2)
                sent = (blocks - 1) * width // blocks * tiles * (0.5 if direction == "forward" else 1)
                exchange = 60 if blocks == 1 else 420 + 14 * blocks + sent
                yield 60 + max(arithmetic, memory) + exchange + own * 9 * warps + 90 * (direction == "backward"), plan


def polled(cell: Cell, direction: Direction, width: int, batch: int, gpu: Gpu) -> Iterator[Proposal]:
    gates, per_unit = GATES[cell], GATES[cell] if direction == "forward" else 1
    summed = width if direction == "forward" else gates * width
    for blocks in (count for count in (1, 2, 4) if count in gpu.clusters):
        room = gpu.clusters[blocks]
        for units in (8, 16, 32, 48, 64, 96, 128):
            if width % units or units % blocks or room // (width // units) < 1:
                continue
            slices = min(-(-batch // 8), room // (width // units))
            tiles = -(-batch // (8 * slices))
            for warps, pieces, buffers in (
                (w, n, d) for w in (6, 8, 12, 16) for n in (1, 2, 3, 4, 6, 8) for d in (2, 1)
            ):
                plan = Plan("polled", cell, direction, width, blocks, units, tiles, warps, 0, buffers, pieces)
                if tiles > 8 or summed % (blocks * warps * 32) or per_unit * units % 16 or plan.steps % (2 * pieces):
                    continue
                own = -(-(units // blocks * plan.rows) // plan.threads)
                fetched = plan.steps // 2 // pieces * tiles * 4 + 2 * tiles
                others = (
                    plan.matrix_tiles * tiles * 4
                    + fetched
                    + own * (8 + (2 * gates if direction == "forward" else 7))
                    + 4
                )
                plan = plan._replace(kept=_registers_left(plan, others))
                if others + 40 > 255 or not plan.fits(gpu):
                    continue
                read = plan.rows * summed // blocks * 2
                through_l2 = width // units * blocks * slices * read / (_L2_BYTES * gpu.multiprocessors)
                arithmetic = plan.steps * plan.matrix_tiles * tiles * warps / 4 * gpu.product_cycles
                memory = 4 * warps * (plan.steps - plan.kept) * plan.matrix_tiles
                sums = warps * per_unit * units * plan.rows * 0.08
                cluster = 0 if blocks == 1 else 450 + per_unit * units * plan.rows / 4
                ends = own * 15 * warps + 60 * (buffers == 1)
                yield 750 + max(through_l2, read / 50) + max(arithmetic, memory) + sums + cluster + ends, plan


def wide(cell: Cell, direction: Direction, width: int, batch: int, gpu: Gpu) -> Iterator[Proposal]:
    gates = GATES[cell]
    mixed = direction == "forward" and gates > 1
    units, summed = 32 if mixed else 128, width if direction == "forward" else gates * width
    if not gpu.measured or batch < 32 or width < 512 or width % units:
        return
    for blocks, parts in product((count for count in (1, 2, 4, 8) if count in gpu.clusters), (1, 2, 3, 4)):
        slices = min(gpu.clusters[blocks] // (width // units), -(-batch // 8))
        if slices < 1 or summed % (64 * blocks):
            continue
        tiles = -(-batch // (8 * slices * parts))
        if tiles > 16 or (parts > 1 and -(-batch // (8 * slices)) < 2 * parts):
            continue
        own = (tiles if blocks == 1 else -(-(8 // blocks) * tiles // 8)) * (1 if mixed else 4)
        operands = own * (gates if direction == "forward" else 5)
        for chunks, flying in product((9, 8, 7, 6, 5, 4), (16, 12, 8, 6, 4, 3, 2)):
            kept = 4 * min(chunks, summed // blocks // 64)
            both = 4 * tiles + operands if blocks == 1 else max(4 * tiles, operands)
            plan = Plan("wide", cell, direction, width, blocks, units, tiles, 12, kept, flying, parts)
            if 4 * kept + both + 2 * own * parts + 40 <= 232 and plan.fits(gpu):
                read = plan.rows * summed // blocks * 2
                through_l2 = width // units * blocks * slices * read / (_L2_BYTES * gpu.multiprocessors)
                arithmetic = 128 * plan.rows * (summed // blocks) / 2048
                work = (
                    250 * (summed // blocks // 64 // plan.chunks_at_once)
                    + max(arithmetic, through_l2, read / 45)
                    + 40 * own
                )
                exchange = 2700 + 700 * (blocks > 1)  # behind which the other parts are multiplied
                yield work + max(exchange, (parts - 1) * work), plan
                break


MAKERS: dict[Kind, Callable[[Cell, Direction, int, int, Gpu], Iterator[Proposal]]] = {
    "cluster": clustered,
    "polled": polled,
    "wide": wide,
}


def _best_first(kind: Kind, cell: Cell, direction: Direction, width: int, batch: int, gpu: Gpu) -> list[Proposal]:
    """Plans that differ only in registers and buffers count as one."""
    proposed: dict[tuple[object, ...], Proposal] = {}
    for cost, plan in sorted(MAKERS[kind](cell, direction, width, batch, gpu), key=lambda proposal: proposal[0]):
        proposed.setdefault((plan.blocks, plan.units, plan.tiles, plan.warps, plan.pieces), (cost, plan))
    return list(proposed.values())


def proposals(
    cell: Cell, direction: Direction, width: int, batch: int, gpu: Gpu, counts: dict[Kind, int]
) -> list[Plan]:
    """So many of each kind, the most promising first."""
    return [
        plan
        for kind, count in counts.items()
        for _, plan in _best_first(kind, cell, direction, width, batch, gpu)[:count]
    ]


@cache
def expected(cell: Cell, width: int, batch: int, gpu: Gpu) -> tuple[Plan, Plan] | None:
    """Forward and backward plans for a GPU without measurements; None where the predicted speed is too low."""
    padded = next((known for known in WIDTHS if known >= width), None)
    if padded is None or batch > BATCHES[-1]:
        return None
    rows = next(size for size in (8, 16, 32, 64, 128, 256) if size >= batch)  # few plans, so few to compile
    directions: tuple[Direction, Direction] = ("forward", "backward")
    kinds: tuple[Kind, Kind] = ("cluster", "polled")
    best = [
        min(
            (proposal for kind in kinds for proposal in _best_first(kind, cell, direction, padded, rows, gpu)),
            key=lambda proposal: proposal[0],
            default=None,
        )
        for direction in directions
    ]
    if best[0] is None or best[1] is None or best[0][0] + best[1][0] > _SAFE_CYCLES:
        return None
    return best[0][1], best[1][1]


Row = tuple[Kind, int, int, int, int, int, int, int]  # the fields of a Plan after its width, its kind in front


def _read() -> dict[tuple[Cell, Direction, int], dict[int, Row]]:
    """By cell, direction and width: the plan of each batch."""
    table: dict[Any, dict[int, Any]] = {}
    with Path(__file__).with_name("h200.csv").open(encoding="ascii", newline="") as file:
        for cell, direction, width, batch, kind, *sizes in list(csv.reader(file))[1:]:
            table.setdefault((cell, direction, int(width)), {})[int(batch)] = (kind, *map(int, sizes))
    return table


FASTEST = _read()


def plans(cell: Cell, *, width: int, batch: int, gpu: Gpu) -> tuple[Plan, Plan] | None:
    """Forward and backward, for the next width and batch."""
    if not gpu.measured:
        return expected(cell, width, batch, gpu)
    pair = measured(cell, width=width, batch=batch)
    if pair is not None and any(_blocks(plan, batch) > gpu.multiprocessors for plan in pair):
        return expected(cell, width, batch, gpu)
    return pair


def forward_alone(cell: Cell, *, width: int, batch: int, gpu: Gpu) -> Plan | None:
    """Where there is a plan forward and none backward; the width is the plan's own."""
    if not gpu.measured or measured(cell, width=width, batch=batch) is not None:
        return None
    rows = FASTEST.get((cell, "forward", width), {})
    size = next((size for size in sorted(rows) if size >= batch), None)
    plan = None if size is None else _plan(cell, "forward", width, rows[size])
    return None if plan is None or _blocks(plan, batch) > gpu.multiprocessors else plan


def _blocks(plan: Plan, batch: int) -> int:
    """That must run at once."""
    across, down = plan.grid(batch)
    return across * down if plan.cooperative else plan.blocks


@cache
def measured(cell: Cell, *, width: int, batch: int) -> tuple[Plan, Plan] | None:
    """Those of an H200."""
    family: Cell = "tanh" if cell == "relu" else cell
    for padded in sorted({entry[2] for entry in FASTEST if entry[0] == family}):
        if padded >= width:
            break
    else:
        return None
    directions: tuple[Direction, Direction] = ("forward", "backward")
    rows = [FASTEST.get((family, direction, padded), {}) for direction in directions]
    served = [size for size in sorted(set(rows[0]) & set(rows[1])) if size >= batch]
    if not served:
        return None
    made = [_plan(cell, direction, padded, row[served[0]]) for direction, row in zip(directions, rows, strict=True)]
    return made[0], made[1]


def _plan(cell: Cell, direction: Direction, width: int, row: Row) -> Plan:
    kind, *rest = row
    return Plan(kind, cell, direction, width, *rest)
