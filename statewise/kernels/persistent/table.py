"""Which plan takes which shape: the fastest of those tried on an H200. What has none, another form takes.

An entry serves its width and every batch up to its own that no smaller entry serves. Other GPUs, and Hopper GPUs with
too few multiprocessors for an entry, have the plans that `proposals.py` expects most of.
"""

from functools import cache

from statewise.kernels.gpu import Gpu
from statewise.kernels.persistent.h200 import FASTEST, Row
from statewise.kernels.persistent.plan import Cell, Direction, Plan
from statewise.kernels.persistent.proposals import expected


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
