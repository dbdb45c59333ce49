"""NVIDIA's compute-sanitizer over every kind of persistent kernel, at small shapes, each in a separate process.

    python benchmarks/recurrent_sanitize.py                    # memcheck and racecheck, a table
    python benchmarks/recurrent_sanitize.py --tools memcheck --limit 60

memcheck looks for accesses outside of allocations, in all memory. racecheck looks for hazards in shared memory only: it
does not see what blocks exchange through global memory. The emulator of the tests, with a random order of threads, and
the repetitions of `recurrent.py --safe` cover that. Under the tools a kernel runs hundreds of times slower, so its
waits may take minutes.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import torch
from command_line import need_gpu
from recurrent_tune import draw, errors, right_results, run_once

from statewise.kernels.persistent import compiler
from statewise.kernels.persistent.driver import kernel
from statewise.kernels.persistent.plan import Plan
from statewise.kernels.persistent.stall import raise_if_stalled
from statewise.specs import UserError

BATCH, STEPS, PATIENCE = 20, 5, 600.0
PLANS = (
    Plan("cluster", "tanh", "forward", 128, 1, 128, 1, 8, 8),
    Plan("cluster", "lstm", "forward", 128, 4, 128, 1, 8, 6),
    Plan("cluster", "gru", "backward", 128, 1, 128, 1, 8, 8),
    Plan("cluster", "lstm", "backward", 128, 4, 128, 2, 8, 4),
    Plan("polled", "gru", "forward", 256, 1, 32, 2, 8, 1, 1, 1),
    Plan("polled", "lstm", "forward", 256, 2, 32, 1, 4, 1),
    Plan("polled", "tanh", "backward", 256, 1, 32, 1, 8, 1),
    Plan("polled", "lstm", "backward", 256, 4, 64, 1, 4, 2, 2, 2),
    Plan("wide", "lstm", "forward", 256, 1, 32, 2, 12, 8, 4),
    Plan("wide", "gru", "forward", 256, 2, 32, 2, 12, 4, 2),
    Plan("wide", "tanh", "backward", 256, 1, 128, 2, 12, 8, 4),
    Plan("wide", "lstm", "backward", 256, 4, 128, 2, 12, 4, 6),
    Plan("wide", "lstm", "forward", 256, 1, 32, 1, 12, 8, 16, 3),
    Plan("wide", "gru", "backward", 256, 4, 128, 1, 12, 4, 12, 3),
)
_SUMMARY = {"memcheck": r"ERROR SUMMARY: (.+)", "racecheck": r"RACECHECK SUMMARY: (.+)"}


def run(plan: Plan) -> None:
    """What the sanitizer watches: one launch, its results compared with the equation in float64."""
    compiler.OPTIONS.append("-lineinfo")
    data = draw(plan.cell, plan.width, BATCH, STEPS)
    ends_B = torch.tensor([(STEPS, 0, 1, 4)[i % 4] for i in range(BATCH)], dtype=torch.int32, device="cuda")
    right = right_results(plan.cell, data, ends_B)
    kept = {"y": torch.cat([data["h"][None], right["y"].bfloat16()]), "cells": right["cells"].float()}
    if "saved" in right:
        kept["saved"] = right["saved"].bfloat16()
    loaded = kernel(plan, half=False, device=0)
    found = run_once(loaded, data, STEPS, BATCH, kept, ends_B, patience=PATIENCE)
    raise_if_stalled(wait=True)
    print("worst error", max(errors(plan, found, right, data).values()))


def binary(wished: Path | None) -> Path:
    beside = [Path(nvcc).resolve().parent for nvcc in [shutil.which("nvcc")] if nvcc is not None]
    beside += [Path(os.environ[name]) / "bin" for name in ("CUDA_HOME", "CUDA_PATH") if name in os.environ]
    found = shutil.which("compute-sanitizer")
    candidates = [wished] if wished is not None else [Path(found)] if found else []
    candidates += [folder / "compute-sanitizer" for folder in beside]
    for path in candidates:
        if path.is_file():
            return path
    raise UserError(
        f"compute-sanitizer was not found (tried PATH{''.join(f', {path}' for path in candidates)})",
        fix="it comes with the CUDA toolkit; name it with --sanitizer PATH",
    )


def sanitize(plan: Plan, tool: str, sanitizer: Path, limit: float) -> dict[str, object]:
    command = [str(sanitizer), "--tool", tool, "--error-exitcode", "9"]
    command += [sys.executable, __file__, "--run", json.dumps(plan)]
    began = time.monotonic()
    row: dict[str, object] = {"plan": plan.name, "tool": tool}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit)
        text = done.stdout + done.stderr
        summary, worst = re.search(_SUMMARY[tool], text), re.search(r"worst error (\S+)", text)
        row["summary"] = summary.group(1) if summary else f"exit {done.returncode}: {text[-300:]}"
        row["error"] = float(worst.group(1)) if worst else None
        row["clean"] = done.returncode == 0 and worst is not None and float(worst.group(1)) < 0.02
        row["told"] = [line for line in text.splitlines() if line.startswith("=========")][:40]
    except subprocess.TimeoutExpired:
        row |= {"summary": f"not done after {limit:.0f} s", "error": None, "clean": False}
    return row | {"seconds": round(time.monotonic() - began, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", help=argparse.SUPPRESS)
    parser.add_argument("--tools", nargs="+", choices=list(_SUMMARY), default=list(_SUMMARY))
    parser.add_argument(
        "--kinds", nargs="+", choices=["cluster", "polled", "wide"], default=["cluster", "polled", "wide"]
    )
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for one plan under one tool")
    parser.add_argument("--sanitizer", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.run is not None:
        run(Plan(*json.loads(options.run)))
        return
    need_gpu()
    try:
        sanitizer = binary(options.sanitizer)
    except UserError as error:
        sys.exit(str(error))
    rows = []
    print("| plan | tool | summary | worst error | seconds |\n|---|---|---|---|---|")
    for tool in options.tools:
        for plan in (plan for plan in PLANS if plan.kind in options.kinds):
            row = sanitize(plan, tool, sanitizer, options.limit)
            rows.append(row)
            worst = "–" if row["error"] is None else f"{row['error']:.1e}"
            print(f"| {row['plan']} | {tool} | {row['summary']} | {worst} | {row['seconds']} |", flush=True)
            if not row["clean"]:
                print(*row.get("told", ()), sep="\n", flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps(rows))
    unclean = [row for row in rows if not row["clean"]]
    print(f"\n{len(rows) - len(unclean)} of {len(rows)} clean.")
    sys.exit(1 if unclean else 0)


if __name__ == "__main__":
    main()
