"""Recurrent kernels whose blocks wait for each other: the same bits a hundred times, with other GPU work too."""

import json
import time
from itertools import product
from typing import Any

import torch
from recurrent_case import CELLS, Case, draw, mixer, module_choice, ours

from statewise.kernels import persistent
from statewise.kernels.gpu import gpu_of
from statewise.kernels.persistent.plan import Cell
from statewise.kernels.persistent.table import BATCHES, WIDTHS, plans

_FAMILIES: dict[str, Cell] = {"elman": "tanh", "gru": "gru", "lstm": "lstm"}
_REPETITIONS = 100


def every_kind() -> list[Case]:
    """Shapes whose plans, together, are of every kind that this GPU has, in one block and in clusters, both ways."""
    seen: set[tuple[str, str, bool]] = set()
    cases = []
    for cell, width, batch in product(CELLS, WIDTHS, BATCHES):
        pair = plans(_FAMILIES[cell], width=width, batch=batch, gpu=gpu_of(0)) or ()
        kinds = {(plan.kind, plan.direction, plan.blocks > 1) for plan in pair}
        if kinds - seen:
            seen |= kinds
            cases.append(Case(cell, width, batch, 64, width, torch.bfloat16))
    return cases


def safe(rows: list[dict[str, Any]], seconds: float) -> None:
    cases = every_kind()
    for case in cases:
        module, drawn = mixer(case), draw(case)
        first = ours(module, case, *drawn)
        equal = all(
            all(torch.equal(a, b) for a, b in zip(first.values(), ours(module, case, *drawn).values()))
            for _ in range(_REPETITIONS)
        )
        persistent.raise_if_stalled(wait=True)
        rows.append({"repeated": case.label, "choice": module_choice(module, case), "equal": equal})
        print(json.dumps(rows[-1]), flush=True)
    company(rows, cases, seconds)


def company(rows: list[dict[str, Any]], cases: list[Case], seconds: float) -> None:
    """Two of our layers at a time, on two streams, all pairs in turn, while a third multiplies large matrices."""
    work = [(case, mixer(case), draw(case)) for case in cases]
    expected = [ours(module, case, *drawn) for case, module, drawn in work]
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    streams = [torch.cuda.Stream() for _ in range(3)]
    pairs = list(product(range(len(work)), repeat=2))
    torch.cuda.synchronize()
    began, turns, equal = time.monotonic(), 0, True
    while time.monotonic() - began < seconds:
        with torch.cuda.stream(streams[2]):
            for _ in range(4):
                a @ a
        found = []
        for stream, number in zip(streams, pairs[turns % len(pairs)]):
            case, module, drawn = work[number]
            with torch.cuda.stream(stream):
                found.append((ours(module, case, *drawn), expected[number]))
        torch.cuda.synchronize()
        equal &= all(torch.equal(ours_[name], theirs[name]) for ours_, theirs in found for name in ours_)
        turns += 1
    persistent.raise_if_stalled(wait=True)
    rows.append({"company": [case.label for case in cases], "turns": turns, "seconds": seconds, "equal": equal})
    print(json.dumps(rows[-1]), flush=True)
