"""Which plan takes which shape: the fastest of those tried on an H200. What has none, another form takes.

`h200.csv` has them, as `benchmarks/recurrent_tune.py --table` prints them. A shape that has a plan one way alone is
taken that way alone, by `stepped`. An entry serves its width and every batch up to its own that no smaller entry
serves. Other GPUs, and Hopper GPUs with too few multiprocessors for an entry, have the plans that `proposals.py`
expects most of.
"""

import csv
from functools import cache
from pathlib import Path
from typing import Any

from statewise.kernels.gpu import Gpu
from statewise.kernels.persistent.plan import Cell, Direction, Kind, Plan
from statewise.kernels.persistent.proposals import expected

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
