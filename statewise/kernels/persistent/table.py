"""Which plan takes which shape: the fastest of those tried on an H200. What is not here, another form takes.

An entry serves its width and every batch up to its own that no smaller entry serves. Other GPUs, and Hopper GPUs with
too few multiprocessors for an entry, have the plans that `proposals.py` expects most of.
"""

from functools import cache

from statewise.kernels.persistent.chip import Chip
from statewise.kernels.persistent.plan import Cell, Kind, Plan, Way
from statewise.kernels.persistent.proposals import expected

Row = tuple[Kind, int, int, int, int, int, int, int]  # the fields of a Plan after its width, its kind in front

_TABLE: dict[tuple[Cell, Way, int], dict[int, Row]] = {
    ("tanh", "forward", 128): {
        1: ("cluster", 1, 128, 1, 8, 8, 2, 1),
        16: ("cluster", 1, 128, 1, 8, 8, 2, 1),
        64: ("cluster", 1, 128, 1, 8, 8, 2, 1),
        256: ("cluster", 1, 128, 1, 8, 8, 2, 1),
    },
    ("tanh", "forward", 256): {
        1: ("cluster", 4, 256, 1, 4, 16, 2, 1),
        16: ("cluster", 4, 256, 1, 4, 16, 2, 1),
        64: ("cluster", 4, 256, 1, 4, 16, 2, 1),
        256: ("cluster", 2, 256, 1, 4, 16, 2, 1),
    },
    ("tanh", "forward", 512): {
        1: ("cluster", 8, 512, 1, 4, 32, 2, 1),
        16: ("cluster", 8, 512, 1, 4, 32, 2, 1),
        64: ("cluster", 8, 512, 1, 4, 32, 2, 1),
        256: ("polled", 1, 128, 1, 8, 4, 2, 1),
    },
    ("tanh", "forward", 768): {
        1: ("polled", 1, 32, 1, 8, 6, 2, 1),
        16: ("polled", 1, 32, 1, 8, 6, 2, 1),
        64: ("polled", 1, 64, 1, 8, 6, 2, 1),
        256: ("polled", 1, 96, 2, 8, 3, 2, 1),
    },
    ("tanh", "forward", 1024): {
        1: ("polled", 1, 32, 1, 8, 8, 2, 1),
        16: ("polled", 1, 32, 1, 8, 8, 2, 1),
        64: ("polled", 1, 64, 1, 8, 8, 2, 1),
        256: ("polled", 1, 64, 4, 8, 1, 1, 2),
    },
    ("tanh", "forward", 1536): {
        1: ("polled", 1, 32, 1, 8, 12, 2, 1),
        16: ("polled", 1, 32, 1, 8, 12, 2, 1),
        64: ("polled", 1, 96, 1, 8, 6, 2, 3),
        256: ("wide", 2, 128, 7, 12, 32, 10, 1),
    },
    ("tanh", "forward", 2048): {
        1: ("polled", 1, 32, 1, 16, 6, 2, 1),
        16: ("polled", 2, 64, 1, 8, 8, 2, 1),
        64: ("polled", 1, 64, 2, 8, 7, 2, 4),
    },
    ("tanh", "backward", 128): {
        1: ("cluster", 1, 128, 1, 8, 8, 2, 1),
        16: ("cluster", 1, 128, 1, 8, 8, 2, 1),
        64: ("cluster", 1, 128, 1, 8, 8, 2, 1),
        256: ("cluster", 1, 128, 1, 8, 8, 2, 1),
    },
    ("tanh", "backward", 256): {
        1: ("polled", 1, 32, 1, 8, 2, 2, 1),
        16: ("polled", 1, 32, 1, 8, 2, 2, 1),
        64: ("polled", 1, 32, 1, 8, 2, 2, 1),
        256: ("cluster", 2, 256, 1, 8, 8, 2, 1),
    },
    ("tanh", "backward", 512): {
        1: ("polled", 1, 32, 1, 8, 4, 2, 1),
        16: ("polled", 1, 32, 1, 8, 4, 2, 1),
        64: ("polled", 1, 32, 1, 8, 4, 2, 1),
        256: ("polled", 1, 128, 1, 8, 3, 2, 1),
    },
    ("tanh", "backward", 768): {
        1: ("polled", 1, 32, 1, 8, 6, 2, 1),
        16: ("polled", 1, 32, 1, 8, 6, 2, 1),
        64: ("polled", 1, 48, 1, 8, 6, 2, 1),
        256: ("polled", 1, 96, 2, 8, 1, 2, 1),
    },
    ("tanh", "backward", 1024): {
        1: ("polled", 1, 32, 1, 8, 8, 2, 1),
        16: ("polled", 1, 32, 1, 8, 8, 2, 1),
        64: ("polled", 1, 64, 1, 8, 8, 2, 1),
        256: ("polled", 1, 64, 4, 8, 0, 1, 4),
    },
    ("tanh", "backward", 1536): {
        1: ("polled", 1, 32, 1, 8, 12, 2, 1),
        16: ("polled", 1, 32, 1, 8, 12, 2, 1),
        64: ("polled", 1, 96, 1, 8, 5, 2, 2),
        256: ("wide", 2, 128, 7, 12, 20, 10, 1),
    },
    ("tanh", "backward", 2048): {
        1: ("polled", 1, 32, 1, 16, 5, 2, 1),
        16: ("polled", 2, 64, 1, 8, 8, 2, 1),
        64: ("polled", 1, 64, 2, 8, 6, 2, 4),
    },
    ("gru", "forward", 128): {
        1: ("cluster", 4, 128, 1, 4, 8, 2, 1),
        16: ("cluster", 4, 128, 1, 4, 8, 2, 1),
        64: ("cluster", 4, 128, 1, 4, 8, 2, 1),
        256: ("cluster", 2, 128, 1, 8, 8, 2, 1),
    },
    ("gru", "forward", 256): {
        1: ("cluster", 8, 256, 1, 4, 16, 2, 1),
        16: ("cluster", 8, 256, 1, 4, 16, 2, 1),
        64: ("cluster", 8, 256, 1, 4, 16, 2, 1),
        256: ("polled", 1, 64, 1, 8, 2, 2, 1),
    },
    ("gru", "forward", 512): {
        1: ("polled", 1, 16, 1, 8, 4, 2, 1),
        16: ("cluster", 16, 512, 1, 8, 32, 2, 1),
        64: ("polled", 1, 32, 1, 8, 4, 2, 1),
        256: ("polled", 1, 32, 4, 8, 1, 1, 2),
    },
    ("gru", "forward", 768): {
        1: ("polled", 1, 16, 1, 12, 4, 2, 1),
        16: ("polled", 1, 16, 1, 6, 8, 2, 1),
        64: ("polled", 1, 48, 1, 8, 3, 2, 1),
        256: ("wide", 1, 32, 7, 12, 32, 10, 1),
    },
    ("gru", "forward", 1024): {
        1: ("polled", 1, 16, 1, 16, 4, 2, 1),
        16: ("polled", 1, 16, 1, 8, 8, 2, 2),
        64: ("polled", 1, 32, 2, 8, 5, 2, 4),
        256: ("wide", 1, 32, 8, 12, 32, 10, 1),
    },
    ("gru", "forward", 1536): {
        1: ("polled", 1, 16, 1, 8, 12, 2, 1),
        16: ("polled", 1, 32, 1, 8, 6, 2, 1),
        64: ("wide", 2, 32, 8, 12, 36, 10, 1),
    },
    ("gru", "forward", 2048): {1: ("polled", 1, 16, 1, 8, 12, 2, 1), 16: ("polled", 2, 32, 2, 8, 5, 2, 2)},
    ("gru", "backward", 128): {
        1: ("cluster", 8, 128, 1, 4, 4, 2, 1),
        16: ("cluster", 8, 128, 1, 4, 4, 2, 1),
        64: ("cluster", 8, 128, 1, 4, 4, 2, 1),
        256: ("cluster", 2, 128, 1, 8, 12, 2, 1),
    },
    ("gru", "backward", 256): {
        1: ("cluster", 16, 256, 1, 4, 4, 2, 1),
        16: ("cluster", 16, 256, 1, 4, 4, 2, 1),
        64: ("cluster", 8, 256, 1, 8, 6, 2, 1),
        256: ("polled", 1, 64, 1, 8, 6, 2, 1),
    },
    ("gru", "backward", 512): {
        1: ("polled", 1, 16, 1, 12, 8, 2, 1),
        16: ("cluster", 16, 512, 1, 8, 6, 2, 1),
        64: ("polled", 1, 32, 1, 8, 12, 2, 2),
        256: ("polled", 1, 64, 2, 8, 5, 2, 2),
    },
    ("gru", "backward", 768): {
        1: ("polled", 1, 16, 1, 12, 12, 2, 1),
        16: ("polled", 4, 64, 1, 6, 6, 2, 1),
        64: ("polled", 1, 48, 1, 12, 7, 2, 2),
        256: ("wide", 4, 128, 7, 12, 36, 10, 1),
    },
    ("gru", "backward", 1024): {
        1: ("polled", 4, 64, 1, 6, 8, 2, 1),
        16: ("polled", 1, 32, 1, 8, 20, 2, 2),
        64: ("polled", 2, 64, 2, 8, 7, 2, 2),
        256: ("wide", 4, 128, 11, 12, 28, 8, 1),
    },
    ("gru", "backward", 1536): {
        1: ("polled", 4, 64, 1, 6, 9, 2, 1),
        16: ("polled", 2, 64, 1, 8, 10, 2, 3),
        64: ("wide", 8, 128, 8, 12, 36, 10, 1),
    },
    ("gru", "backward", 2048): {1: ("polled", 2, 32, 1, 12, 10, 2, 2), 16: ("polled", 1, 32, 1, 8, 21, 1, 8)},
    ("lstm", "forward", 128): {
        1: ("cluster", 4, 128, 1, 4, 8, 2, 1),
        16: ("cluster", 8, 128, 1, 4, 8, 2, 1),
        64: ("cluster", 8, 128, 1, 4, 8, 2, 1),
        256: ("cluster", 2, 128, 1, 8, 8, 2, 1),
    },
    ("lstm", "forward", 256): {
        1: ("cluster", 16, 256, 1, 4, 16, 2, 1),
        16: ("cluster", 16, 256, 1, 4, 16, 2, 1),
        64: ("cluster", 8, 256, 1, 8, 16, 2, 1),
        256: ("polled", 1, 64, 1, 8, 1, 2, 1),
    },
    ("lstm", "forward", 512): {
        1: ("polled", 1, 16, 1, 8, 4, 2, 1),
        16: ("cluster", 16, 512, 1, 8, 32, 2, 1),
        64: ("polled", 1, 32, 1, 8, 4, 2, 1),
        256: ("cluster", 8, 512, 3, 8, 16, 2, 1),
    },
    ("lstm", "forward", 768): {
        1: ("polled", 1, 16, 1, 6, 8, 2, 1),
        16: ("polled", 1, 16, 1, 8, 6, 2, 1),
        64: ("polled", 1, 32, 2, 8, 2, 1, 1),
        256: ("wide", 1, 32, 7, 12, 32, 10, 1),
    },
    ("lstm", "forward", 1024): {
        1: ("polled", 1, 16, 1, 8, 8, 2, 1),
        16: ("polled", 1, 16, 1, 16, 2, 2, 2),
        64: ("polled", 1, 32, 2, 8, 3, 1, 4),
        256: ("wide", 1, 32, 8, 12, 28, 8, 1),
    },
    ("lstm", "forward", 1536): {
        1: ("polled", 1, 16, 1, 8, 9, 2, 1),
        16: ("polled", 2, 32, 2, 6, 2, 1, 1),
        64: ("wide", 2, 32, 8, 12, 36, 10, 1),
    },
    ("lstm", "forward", 2048): {1: ("polled", 1, 16, 1, 8, 9, 2, 1), 16: ("polled", 1, 16, 2, 8, 8, 2, 4)},
    ("lstm", "backward", 128): {
        1: ("cluster", 8, 128, 1, 4, 4, 2, 1),
        16: ("cluster", 8, 128, 1, 4, 4, 2, 1),
        64: ("cluster", 8, 128, 1, 4, 4, 2, 1),
        256: ("cluster", 2, 128, 1, 8, 16, 2, 1),
    },
    ("lstm", "backward", 256): {
        1: ("cluster", 16, 256, 1, 4, 4, 2, 1),
        16: ("cluster", 16, 256, 1, 4, 4, 2, 1),
        64: ("cluster", 8, 256, 1, 8, 8, 2, 1),
        256: ("polled", 1, 64, 1, 8, 8, 2, 1),
    },
    ("lstm", "backward", 512): {
        1: ("polled", 1, 16, 1, 16, 8, 2, 1),
        16: ("cluster", 16, 512, 1, 8, 8, 2, 1),
        64: ("polled", 2, 64, 1, 8, 8, 2, 1),
        256: ("polled", 1, 64, 2, 8, 6, 2, 4),
    },
    ("lstm", "backward", 768): {
        1: ("polled", 4, 64, 1, 6, 8, 2, 1),
        16: ("polled", 4, 64, 1, 8, 6, 2, 1),
        64: ("polled", 1, 48, 1, 8, 12, 2, 3),
        256: ("wide", 8, 128, 16, 12, 24, 10, 1),
    },
    ("lstm", "backward", 1024): {
        1: ("polled", 4, 64, 1, 8, 8, 2, 1),
        16: ("polled", 2, 32, 1, 8, 15, 2, 4),
        64: ("polled", 2, 64, 2, 8, 8, 2, 4),
        256: ("wide", 4, 128, 11, 12, 28, 3, 1),
    },
    ("lstm", "backward", 1536): {
        1: ("polled", 4, 64, 1, 8, 9, 2, 1),
        16: ("polled", 2, 48, 1, 8, 13, 2, 2),
        64: ("wide", 8, 128, 8, 12, 36, 10, 1),
    },
    ("lstm", "backward", 2048): {1: ("polled", 2, 32, 1, 8, 19, 2, 2), 16: ("polled", 2, 32, 2, 16, 5, 1, 8)},
}


def plans(cell: Cell, *, width: int, batch: int, chip: Chip) -> tuple[Plan, Plan] | None:
    """Forward and backward, for the next width and batch."""
    if not chip.measured:
        return expected(cell, width, batch, chip)
    pair = measured(cell, width=width, batch=batch)
    if pair is not None and any(_blocks(plan, batch) > chip.multiprocessors for plan in pair):
        return expected(cell, width, batch, chip)
    return pair


def _blocks(plan: Plan, batch: int) -> int:
    """That must run at once."""
    across, down = plan.grid(batch)
    return across * down if plan.cooperative else plan.blocks


@cache
def measured(cell: Cell, *, width: int, batch: int) -> tuple[Plan, Plan] | None:
    """The table's."""
    family: Cell = "tanh" if cell == "relu" else cell
    for padded in sorted({entry[2] for entry in _TABLE if entry[0] == family}):
        if padded >= width:
            break
    else:
        return None
    ways: tuple[Way, Way] = ("forward", "backward")
    rows = [_TABLE.get((family, way, padded), {}) for way in ways]
    served = [size for size in sorted(set(rows[0]) & set(rows[1])) if size >= batch]
    if not served:
        return None
    made = [_plan(cell, way, padded, row[served[0]]) for way, row in zip(ways, rows, strict=True)]
    return made[0], made[1]


def _plan(cell: Cell, way: Way, width: int, row: Row) -> Plan:
    kind, *rest = row
    return Plan(kind, cell, way, width, *rest)
