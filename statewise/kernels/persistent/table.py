"""Which plan takes which shape: the fastest of those tried on an H200. What is not here, cuDNN takes.

An entry serves its width and every batch up to its own that no smaller entry serves.
"""

from functools import cache

from statewise.kernels.persistent.plan import Cell, Kind, Plan, Way

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
    },
    ("tanh", "forward", 2048): {
        1: ("polled", 1, 32, 1, 16, 6, 2, 1),
        16: ("polled", 2, 64, 1, 8, 8, 2, 1),
        64: ("polled", 1, 32, 4, 16, 1, 1, 4),
    },
    ("tanh", "backward", 128): {
        1: ("cluster", 1, 128, 1, 8, 8, 2, 1),
        16: ("cluster", 4, 128, 1, 4, 2, 2, 1),
        64: ("cluster", 4, 128, 1, 4, 2, 2, 1),
        256: ("cluster", 2, 128, 1, 8, 4, 2, 1),
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
    },
    ("tanh", "backward", 2048): {
        1: ("polled", 1, 32, 1, 16, 5, 2, 1),
        16: ("polled", 2, 64, 1, 8, 8, 2, 1),
        64: ("polled", 1, 64, 2, 8, 5, 1, 2),
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
        256: ("polled", 1, 32, 4, 8, 0, 1, 1),
    },
    ("gru", "forward", 768): {
        1: ("polled", 1, 16, 1, 12, 4, 2, 1),
        16: ("polled", 1, 16, 1, 6, 8, 2, 1),
        64: ("polled", 1, 48, 1, 8, 3, 2, 1),
    },
    ("gru", "forward", 1024): {
        1: ("polled", 1, 16, 1, 16, 4, 2, 1),
        16: ("polled", 1, 32, 1, 8, 6, 2, 1),
        64: ("polled", 1, 32, 2, 8, 4, 2, 1),
    },
    ("gru", "forward", 1536): {1: ("polled", 1, 16, 1, 8, 12, 2, 1), 16: ("polled", 1, 32, 1, 8, 6, 2, 1)},
    ("gru", "forward", 2048): {1: ("polled", 1, 16, 1, 8, 12, 2, 1), 16: ("polled", 2, 32, 2, 8, 4, 2, 1)},
    ("gru", "backward", 128): {
        1: ("polled", 1, 16, 1, 12, 2, 2, 1),
        16: ("cluster", 4, 128, 1, 8, 6, 2, 1),
        64: ("cluster", 4, 128, 1, 8, 6, 2, 1),
        256: ("cluster", 2, 128, 1, 8, 12, 2, 1),
    },
    ("gru", "backward", 256): {
        1: ("polled", 1, 32, 1, 8, 6, 2, 1),
        16: ("cluster", 8, 256, 1, 8, 6, 2, 1),
        64: ("cluster", 8, 256, 1, 8, 6, 2, 1),
        256: ("polled", 1, 64, 1, 8, 6, 2, 1),
    },
    ("gru", "backward", 512): {
        1: ("polled", 1, 16, 1, 12, 8, 2, 1),
        16: ("cluster", 16, 512, 1, 8, 6, 2, 1),
        64: ("cluster", 8, 512, 1, 8, 11, 2, 1),
        256: ("polled", 1, 64, 2, 12, 1, 1, 2),
    },
    ("gru", "backward", 768): {
        1: ("polled", 1, 16, 1, 12, 12, 2, 1),
        16: ("polled", 4, 64, 1, 6, 6, 2, 1),
        64: ("polled", 1, 48, 1, 12, 7, 2, 2),
    },
    ("gru", "backward", 1024): {
        1: ("polled", 4, 64, 1, 6, 8, 2, 1),
        16: ("polled", 2, 32, 1, 8, 12, 2, 1),
        64: ("polled", 2, 64, 2, 12, 2, 1, 2),
    },
    ("gru", "backward", 1536): {1: ("polled", 4, 64, 1, 6, 9, 2, 1), 16: ("polled", 2, 64, 1, 8, 10, 2, 3)},
    ("gru", "backward", 2048): {1: ("polled", 2, 32, 1, 12, 10, 2, 2), 16: ("polled", 1, 32, 1, 8, 21, 1, 6)},
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
    },
    ("lstm", "forward", 1024): {
        1: ("polled", 1, 16, 1, 8, 8, 2, 1),
        16: ("polled", 2, 32, 1, 8, 4, 2, 1),
        64: ("polled", 1, 32, 2, 8, 3, 1, 4),
    },
    ("lstm", "forward", 1536): {1: ("polled", 1, 16, 1, 8, 9, 2, 1), 16: ("polled", 2, 32, 2, 6, 2, 1, 1)},
    ("lstm", "forward", 2048): {1: ("polled", 1, 16, 1, 8, 9, 2, 1), 16: ("polled", 1, 16, 2, 8, 5, 1, 1)},
    ("lstm", "backward", 128): {
        1: ("cluster", 8, 128, 1, 4, 4, 2, 1),
        16: ("cluster", 8, 128, 1, 4, 4, 2, 1),
        64: ("cluster", 8, 128, 1, 4, 4, 2, 1),
        256: ("polled", 1, 32, 1, 16, 2, 2, 1),
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
        256: ("polled", 1, 64, 2, 8, 5, 1, 2),
    },
    ("lstm", "backward", 768): {
        1: ("polled", 4, 64, 1, 6, 8, 2, 1),
        16: ("polled", 4, 64, 1, 8, 6, 2, 1),
        64: ("polled", 1, 48, 1, 8, 12, 2, 3),
    },
    ("lstm", "backward", 1024): {
        1: ("polled", 4, 64, 1, 8, 8, 2, 1),
        16: ("polled", 4, 128, 1, 8, 4, 2, 1),
        64: ("polled", 2, 64, 2, 8, 5, 1, 1),
    },
    ("lstm", "backward", 1536): {1: ("polled", 4, 64, 1, 8, 9, 2, 1), 16: ("polled", 2, 48, 1, 8, 13, 2, 2)},
    ("lstm", "backward", 2048): {1: ("polled", 2, 32, 1, 8, 19, 2, 2), 16: ("polled", 2, 32, 2, 16, 5, 1, 8)},
}


@cache
def plans(cell: Cell, *, width: int, batch: int) -> tuple[Plan, Plan] | None:
    """Forward and backward, for the next width and batch in the table."""
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
