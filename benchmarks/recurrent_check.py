"""Every output and gradient of our recurrent layers against float64, next to cuDNN's error: `recurrent.py --check`.

If cuDNN has no such layer (layer norm), the equation in the same dtype replaces it.
"""

import json
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import torch
from recurrent_case import CELLS, Case, draw, errors, mixer, module_choice, ours, poison, precision

from statewise.kernels import persistent
from statewise.kernels.choice import force

WIDTHS = (128, 256, 512, 768, 1024, 1536, 2048)
RAGGED = [12, 0, 1, 6, 11]


def check_cases() -> Iterator[Case]:
    for dtype in (torch.bfloat16, torch.float16):
        for cell in CELLS:
            for width in WIDTHS:
                for batch in (1, 16, 64, 256) if dtype == torch.bfloat16 else (16,):
                    yield Case(cell, width, batch, 33, width, dtype)
            for width, inputs in ((200, 100), (650, 65), (1150, 400), (1500, 1500)):
                yield Case(cell, width, 20, 12, inputs, dtype, RAGGED * 4)
            for time_ in (1, 2):
                yield Case(cell, 256, 5, time_, 64, dtype)
                yield Case(cell, 1024, 3, time_, 64, dtype)
        yield Case("elman", 256, 7, 33, 256, dtype, activation="relu")
        yield Case("elman", 1024, 7, 33, 256, dtype, activation="relu")
    yield Case("lstm", 512, 8, 2048, 64, torch.bfloat16)
    yield Case("gru", 512, 8, 2048, 64, torch.bfloat16)


def step_cases() -> Iterator[Case]:
    """For the form that takes any width, dtype and layer norm: graphs of both sizes and steps left over."""
    kinds = [(cell, False) for cell in CELLS] + [("lstm", True)]
    for dtype, tf32 in (
        (torch.bfloat16, False),
        (torch.float16, False),
        (torch.float32, False),
        (torch.float32, True),
    ):
        for cell, normed in kinds:
            for width, batch in ((1024, 256), (2048, 64), (512, 16), (256, 1)):
                yield Case(cell, width, batch, 75, 128, dtype, normed=normed, tf32=tf32)
            for width, inputs in ((200, 100), (650, 65), (1501, 64)):
                yield Case(cell, width, 20, 12, inputs, dtype, RAGGED * 4, normed=normed, tf32=tf32)
            for time_ in (1, 2):
                yield Case(cell, 96, 5, time_, 64, dtype, normed=normed, tf32=tf32)
        yield Case("elman", 256, 7, 33, 256, dtype, activation="relu", tf32=tf32)


def check(rows: list[dict[str, Any]], *, kernel: str | None = None) -> None:
    """Ours within 1.5 times the other's own error, for every tensor."""
    for case in step_cases() if kernel == "stepped" else check_cases():
        try:
            with precision(case):
                row = check_one(case, kernel)
        except Exception as error:
            row = {"check": case.label, "failed": repr(error)[:400], "ok": False}
        rows.append(row)
        print(json.dumps(row), flush=True)


def check_one(case: Case, kernel: str | None) -> dict[str, Any]:
    module, drawn = mixer(case), draw(case)
    wish = force(kernel) if kernel else nullcontext()  # type: ignore[arg-type]  # a wish in words
    with wish:
        chosen = module_choice(module, case)
    with force("naive"):
        exact = mixer(case).double()
        exact.load_state_dict({name: value.double() for name, value in module.state_dict().items()})
        right = ours(exact, case, drawn[0].double(), [s.double() for s in drawn[1]], list(drawn[2]))
    with force("naive" if case.normed else "fused"):
        theirs = errors(ours(module, case, *drawn), right)
    row: dict[str, Any] = {"check": case.label, "choice": chosen}
    if chosen not in ("persistent", "stepped"):
        return row
    # Below this, an error is as good as none: half a unit in the last place of the sums.
    least = 1e-6 if case.dtype == torch.float32 and not case.tf32 else 1e-4
    poison()
    with force(chosen):
        found = [ours(module, case, *drawn) for _ in range(2)]  # the second time from graphs
        mine = errors(found[1], right)
        with persistent.remember("cell"):
            again = errors(ours(module, case, *drawn), right)
    persistent.raise_if_stalled(wait=True)
    ratios = {name: mine[name] / max(theirs[name], least) for name in mine}
    worst = max(ratios, key=lambda name: ratios[name])
    row |= {"worst": worst, "error": mine[worst], "other": theirs[worst], "ratio": ratios[worst]}
    row |= {"largest": max(mine.values()), "recomputed": max(again[n] / max(theirs[n], least) for n in again)}
    row["equal"] = all(torch.equal(found[0][name], found[1][name]) for name in mine)
    row["ok"] = ratios[worst] <= 1.5 and row["recomputed"] <= 2.0 and row["equal"]
    return row
