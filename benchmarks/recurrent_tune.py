"""Plans of the persistent kernels, each checked against float64 and timed alone, and the table they make.

    python benchmarks/recurrent_tune.py                    # on a Hopper GPU: a line of JSON a plan, into tune.jsonl
    python benchmarks/recurrent_tune.py --compile          # before that, anywhere: fill the cache, on all cores
    python benchmarks/recurrent_tune.py --report tune.jsonl  # the fastest of each shape, forward / backward
    python benchmarks/recurrent_tune.py --table tune.jsonl   # the rows of kernels/persistent/table.py

Time is that of the kernel alone: no product before or after it, no autograd. A rough model of costs proposes plans;
the GPU decides. The work is done in a process of its own, begun anew behind a plan that crashes it.
"""

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from statewise.kernels.elman import ElmanWeights, elman_step
from statewise.kernels.gru import GRUWeights, gru_step
from statewise.kernels.lstm import LSTMWeights, lstm_step
from statewise.kernels.persistent.alarm import address, raise_if_stalled
from statewise.kernels.persistent.compiler import machine_code
from statewise.kernels.persistent.driver import Kernel, Run, kernel, launch, pointer
from statewise.kernels.persistent.plan import GATES, Cell, Plan, Way

CELLS: tuple[Cell, ...] = ("lstm", "gru", "tanh")
WIDTHS, BATCHES = (128, 256, 512, 768, 1024, 1536, 2048), (1, 16, 64, 256)
CLUSTERS = {1: 132, 2: 66, 4: 30, 8: 15, 16: 7}  # that an H200 holds at one block a multiprocessor
Proposal = tuple[float, Plan]  # rough cycles a step


def registers_left(plan: Plan, others: float) -> int:
    """Steps of 16 along k that fit beside the other values of a thread."""
    most = min(255, 65536 // plan.threads)
    return int(max(0, min(plan.steps, (most - 40 - others) // (4 * plan.matrix_tiles))))


def clustered(cell: Cell, way: Way, width: int, batch: int) -> Iterator[Proposal]:
    gates = GATES[cell]
    for blocks, room in CLUSTERS.items():
        for warps in (4, 6, 8, 12, 16):
            for tiles in (1, 2, 3, 4, 6, 8):
                if -(-batch // (8 * tiles)) > room or width % blocks:
                    continue
                plan = Plan("cluster", cell, way, width, blocks, width, tiles, warps, 0)
                if plan.matrix_tiles < 1 or plan.steps < 2:
                    continue
                products = plan.matrix_tiles * tiles
                sums = 1 if products >= 4 else 2 if products >= 2 else 4
                own = products * (4 if gates == 1 else 1)
                if way == "backward":
                    own = max(1, width // blocks * 8 * tiles // plan.threads)
                others = 4 * sums * products + 4 * tiles + own * (1.2 * gates + 3 if way == "forward" else 9)
                plan = plan._replace(kept=registers_left(plan, others))
                if not plan.valid:
                    continue
                arithmetic = max(plan.steps * products * warps / 4 * 7, plan.steps / sums * 18 + 30)
                memory = 4 * warps * ((plan.steps - plan.kept) * plan.matrix_tiles + plan.steps * tiles / 2)
                sent = (blocks - 1) * width // blocks * tiles * (0.5 if way == "forward" else 1)
                exchange = 60 if blocks == 1 else 420 + 14 * blocks + sent
                yield 60 + max(arithmetic, memory) + exchange + own * 9 * warps + 90 * (way == "backward"), plan


def polled(cell: Cell, way: Way, width: int, batch: int) -> Iterator[Proposal]:
    gates, per_unit = GATES[cell], GATES[cell] if way == "forward" else 1
    summed = width if way == "forward" else gates * width
    for blocks in (1, 2, 4):
        for units in (8, 16, 32, 48, 64, 96, 128):
            if width % units or units % blocks or CLUSTERS[blocks] // (width // units) < 1:
                continue
            slices = min(-(-batch // 8), CLUSTERS[blocks] // (width // units))
            tiles = -(-batch // (8 * slices))
            for warps, pieces, buffers in (
                (w, n, d) for w in (6, 8, 12, 16) for n in (1, 2, 3, 4, 6, 8) for d in (2, 1)
            ):
                plan = Plan("polled", cell, way, width, blocks, units, tiles, warps, 0, buffers, pieces)
                if tiles > 8 or summed % (blocks * warps * 32) or per_unit * units % 16 or plan.steps % (2 * pieces):
                    continue
                own = -(-(units // blocks * plan.rows) // plan.threads)
                fetched = plan.steps // 2 // pieces * tiles * 4 + 2 * tiles
                others = (
                    plan.matrix_tiles * tiles * 4 + fetched + own * (8 + (2 * gates if way == "forward" else 7)) + 4
                )
                plan = plan._replace(kept=registers_left(plan, others))
                if others + 40 > 255 or not plan.valid:
                    continue
                read = plan.rows * summed // blocks * 2
                over_chip = max(width // units * blocks * slices * read / 2900, read / 50)
                arithmetic = plan.steps * plan.matrix_tiles * tiles * warps / 4 * 7
                memory = 4 * warps * (plan.steps - plan.kept) * plan.matrix_tiles
                sums = warps * per_unit * units * plan.rows * 0.08
                cluster = 0 if blocks == 1 else 450 + per_unit * units * plan.rows / 4
                ends = own * 15 * warps + 60 * (buffers == 1)
                yield 750 + over_chip + max(arithmetic, memory) + sums + cluster + ends, plan


def wide(cell: Cell, way: Way, width: int, batch: int) -> Iterator[Proposal]:
    gates = GATES[cell]
    mixed = way == "forward" and gates > 1
    units, summed = 32 if mixed else 128, width if way == "forward" else gates * width
    if batch < 32 or width < 512 or width % units:
        return
    for blocks in (1, 2, 4, 8):
        slices = min(CLUSTERS[blocks] // (width // units), -(-batch // 8))
        if slices < 1 or summed % (64 * blocks) or -(-batch // (8 * slices)) > 16:
            continue
        tiles = -(-batch // (8 * slices))
        own = (tiles if blocks == 1 else -(-(8 // blocks) * tiles // 8)) * (1 if mixed else 4)
        operands = own * (gates if way == "forward" else 5)
        for chunks, flying in ((n, s) for n in (9, 8, 7, 6, 5, 4) for s in (10, 8, 6, 5, 4, 3, 2)):
            kept = 4 * min(chunks, summed // blocks // 64)
            both = 4 * tiles + operands if blocks == 1 else max(4 * tiles, operands)
            plan = Plan("wide", cell, way, width, blocks, units, tiles, 12, kept, flying)
            if 4 * kept + both + 2 * own + 40 <= 240 and plan.valid:
                read = plan.rows * summed // blocks * 2
                over_chip = max(width // units * blocks * slices * read / 2900, read / 45)
                arithmetic = 128 * plan.rows * (summed // blocks) / 2048
                yield 1500 + max(arithmetic, over_chip) + 700 * (blocks > 1) + 40 * own, plan
                break


def proposals(cell: Cell, way: Way, width: int, batch: int, *, count: int = 4) -> list[Plan]:
    """The most promising of each kind; plans that differ only in registers and buffers count as one."""
    found: dict[tuple[object, ...], Proposal] = {}
    chosen: list[Plan] = []
    for make, most in ((clustered, count), (polled, 2 * count), (wide, 2)):
        found.clear()
        for cost, plan in sorted(make(cell, way, width, batch), key=lambda proposal: proposal[0]):
            found.setdefault((plan.blocks, plan.units, plan.tiles, plan.warps, plan.pieces), (cost, plan))
        chosen += [plan for _, plan in sorted(found.values(), key=lambda proposal: proposal[0])[:most]]
    return chosen


def shapes() -> Iterator[tuple[int, Plan, int]]:
    """All plans with their batch, numbered."""
    number = 0
    for width in WIDTHS:
        for cell in CELLS:
            for way in ("forward", "backward"):
                for batch in BATCHES:
                    for plan in proposals(cell, way, width, batch):
                        yield number, plan, batch
                        number += 1


def draw(cell: Cell, width: int, batch: int, time: int) -> dict[str, Tensor]:
    generator = torch.Generator(device="cuda").manual_seed(width + batch + time)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, device="cuda")

    rows = GATES[cell] * width
    return {
        "a": normal(time, batch, rows).bfloat16(),
        "u": (normal(rows, width) / width**0.5).bfloat16(),
        "b_u": normal(width),
        "h": (0.5 * normal(batch, width)).bfloat16(),
        "c": normal(batch, width),
        "dy": normal(time, batch, width).bfloat16(),
        "dh": normal(batch, width),
        "dc": normal(batch, width),
    }


def right_results(cell: Cell, data: dict[str, Tensor], ends_B: Tensor) -> dict[str, Tensor]:
    """Outputs and gradients by autograd over the equation, in float64, and what the forward kernel would have saved."""
    leaves = {name: data[name].double().requires_grad_() for name in ("a", "u", "b_u", "h", "c")}
    h, c, u = leaves["h"], leaves["c"], leaves["u"]
    outputs, saved, cells = [], [], []
    for t, a in enumerate(leaves["a"]):
        new_c, parts = c, (a + h @ u.mT).chunk(GATES[cell], dim=1)
        if cell == "lstm":
            new_h, new_c = lstm_step(a, h, c, LSTMWeights(u, u, a[0]))
            i, f, g, o = parts
            saved.append(torch.stack([i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()], dim=-1))
        elif cell == "gru":
            new_h = gru_step(a, h, GRUWeights(u, u, a[0], leaves["b_u"]))
            r, z = parts[0].sigmoid(), parts[1].sigmoid()
            a_n = a.chunk(3, dim=1)[2]
            q = parts[2] - a_n + leaves["b_u"]
            saved.append(torch.stack([r, z, (a_n + r * q).tanh(), q], dim=-1))
        else:
            new_h = elman_step(a, h, ElmanWeights(u, u, a[0]))
        active = (t < ends_B)[:, None]
        outputs.append(torch.where(active, new_h, 0.0))
        h, c = torch.where(active, new_h, h), torch.where(active, new_c, c)
        cells.append(c)
    y = torch.stack(outputs)
    total = (y * data["dy"]).sum() + (h * data["dh"]).sum() + (c * data["dc"]).sum()
    gradients = torch.autograd.grad(total, list(leaves.values()), allow_unused=True, materialize_grads=True)
    found = {"y": y, "last h": h, "last c": c, "cells": torch.stack(cells)}
    found |= {f"d {name}": gradient for name, gradient in zip(leaves, gradients, strict=True)}
    if saved:
        found["saved"] = torch.stack(saved)
    return {name: value.detach() for name, value in found.items()}


def run_once(
    loaded: Kernel, data: dict[str, Tensor], time: int, batch: int, kept: dict[str, Tensor], ends_B: Tensor | None
) -> dict[str, Tensor]:
    """One launch; everything it should write holds NaN before. `kept` is what a forward has left for backward."""
    plan = loaded.plan
    gates, width, nan = GATES[plan.cell], plan.width, float("nan")

    def marked(*shape: int) -> Tensor:
        return torch.full(shape, -1, dtype=torch.int16, device="cuda")

    h_out, c_out = (torch.full((batch, width), nan, device="cuda") for _ in range(2))
    counters = torch.zeros(time, plan.grid(batch)[1], dtype=torch.int32, device="cuda")
    run = Run(b_u=pointer(data["b_u"]), c0=pointer(data["c"]), lengths=pointer(ends_B), counters=pointer(counters))
    run.h_out, run.c_out, run.T, run.B = pointer(h_out), pointer(c_out), time, batch
    run.alarm, run.patience = address(), 10**9
    found = {"h": h_out, "c": c_out}
    if plan.way == "forward":
        y, saved, cells = (
            marked(time + 1, batch, width),
            marked(time, batch, width, 4),
            torch.empty(time, batch, width, device="cuda"),
        )
        y[0] = data["h"].view(torch.int16)
        run.x, run.w, run.y = pointer(data["a"]), pointer(data["u"]), pointer(y)
        run.saved, run.cells = pointer(saved), pointer(cells)
        found["y"] = y.view(torch.bfloat16)
    else:
        d, candidate, u_T = marked(time, batch, gates * width), marked(time, batch, width), data["u"].mT.contiguous()
        run.x, run.w, run.y = pointer(data["dy"]), pointer(u_T), pointer(kept["y"])
        run.saved, run.cells = pointer(kept.get("saved")), pointer(kept["cells"])
        run.exchange, run.candidate = pointer(d), pointer(candidate)
        run.dh, run.dc = pointer(data["dh"]), pointer(data["dc"])
        found |= {"d": d.view(torch.bfloat16), "candidate": candidate.view(torch.bfloat16)}
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda._sleep(200_000)  # so that the launch itself is not in the time
    begin.record()
    launch(loaded, run, batch=batch)
    end.record()
    torch.cuda.synchronize()
    found["microseconds"] = torch.tensor(begin.elapsed_time(end) * 1e3 / time)
    return found


def errors(plan: Plan, found: dict[str, Tensor], right: dict[str, Tensor], data: dict[str, Tensor]) -> dict[str, float]:
    pairs = {}
    if plan.way == "forward":
        pairs = {"y": (found["y"][1:], right["y"]), "h": (found["h"], right["last h"])}
        if plan.cell == "lstm":
            pairs["c"] = (found["c"], right["last c"])
    else:
        d, width = found["d"].double(), plan.width
        da = d.clone()
        if plan.cell == "gru":
            da[:, :, 2 * width :] = found["candidate"].double()
            pairs["b_u"] = (d[:, :, 2 * width :].sum((0, 1)), right["d b_u"])
        pairs |= {"a": (da, right["d a"]), "h": (d[0] @ data["u"].double() + found["h"], right["d h"])}
        if plan.cell == "lstm":
            pairs["c"] = (found["c"], right["d c"])
    return {name: float((a.double() - b).norm() / b.norm().clamp(min=1e-12)) for name, (a, b) in pairs.items()}


def work(start: int) -> None:
    """Every plan from number `start` on; one line of JSON each."""
    key, short, steps = None, 9, 256
    for number, plan, batch in shapes():
        if number < start:
            continue
        row: dict[str, Any] = {"number": number, "batch": batch, "plan": list(plan)}
        try:
            if key != (plan.cell, plan.width, batch):
                key = (plan.cell, plan.width, batch)
                small, large = (draw(*key, time) for time in (short, steps))
                ends_B = torch.tensor(
                    [(short, 0, 1, 4, 8)[i % 5] for i in range(batch)], dtype=torch.int32, device="cuda"
                )
                right = right_results(plan.cell, small, ends_B)
                kept = {"y": torch.cat([small["h"][None], right["y"].bfloat16()]), "cells": right["cells"].float()}
                long = {"y": large["dy"].new_zeros(steps + 1, batch, plan.width), "cells": large["dy"].float()}
                if "saved" in right:
                    kept["saved"] = right["saved"].bfloat16()
                    long["saved"] = torch.rand(steps, batch, plan.width, 4, device="cuda").bfloat16()
            loaded = kernel(plan, half=False, device=0)
            if not loaded.fits(batch):
                row["refused"] = f"{loaded.room} clusters fit"
            else:
                found = run_once(loaded, small, short, batch, kept, ends_B)
                row["errors"] = errors(plan, found, right, small)
                times = [run_once(loaded, large, steps, batch, long, None)["microseconds"].item() for _ in range(3)]
                row["microseconds"] = round(statistics.median(times), 3)
                raise_if_stalled(wait=True)
                row["ok"] = max(row["errors"].values()) < 0.02
        except torch.AcceleratorError:
            raise
        except Exception as error:
            row["refused"] = repr(error)[:300]
        print(json.dumps(row), flush=True)


def compile_one(plan: Plan) -> None:
    machine_code(plan, half=False)


def compile_all() -> None:
    with ProcessPoolExecutor() as pool:
        list(pool.map(compile_one, dict.fromkeys(plan for _, plan, _ in shapes()), chunksize=4))


def measure(path: Path) -> None:
    start, last = 0, -1
    with path.open("w") as file:
        while start > last:
            last = start
            command = [sys.executable, __file__, "--work", str(start)]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
                assert process.stdout is not None
                for line in process.stdout:
                    file.write(line)
                    file.flush()
                    start = json.loads(line)["number"] + 1
            if process.returncode == 0:
                return
            print(f"plan {start} ended the process ({process.returncode}); on with the next", flush=True)
            start += 1


def fastest(path: Path) -> dict[tuple[str, str, int], dict[int, tuple[float, list[Any]]]]:
    """By cell, way and width: for each batch the best time and its plan."""
    best: dict[tuple[str, str, int], dict[int, tuple[float, list[Any]]]] = {}
    for row in map(json.loads, path.read_text().splitlines()):
        if row.get("ok"):
            _, cell, way, width, *_ = row["plan"]
            shape = best.setdefault((cell, way, width), {})
            shape[row["batch"]] = min(shape.get(row["batch"], (float("inf"), [])), (row["microseconds"], row["plan"]))
    return dict(sorted(best.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--report", type=Path)
    parser.add_argument("--table", type=Path)
    parser.add_argument("--out", type=Path, default=Path("tune.jsonl"))
    options = parser.parse_args()
    if options.work is not None:
        work(options.work)
    elif options.compile:
        compile_all()
    elif options.table is not None:
        best = fastest(options.table)
        for (cell, way, width), shape in best.items():
            other = best.get((cell, "backward" if way == "forward" else "forward", width), {})
            rows = ", ".join(f"{b}: {(plan[0], *plan[4:])!r}" for b, (_, plan) in sorted(shape.items()) if b in other)
            print(f"    {(cell, way, width)!r}: {{{rows}}},".replace("'", '"'))
    elif options.report is not None:
        print("| cell | width |" + "".join(f" batch {batch} |" for batch in BATCHES))
        print("|---|---|" + "---|" * len(BATCHES))
        best = fastest(options.report)
        for cell, width in ((cell, width) for cell in CELLS for width in WIDTHS):
            pairs = [[best.get((cell, way, width), {}).get(b) for way in ("forward", "backward")] for b in BATCHES]
            times = (" / ".join("–" if one is None else f"{one[0]:.2f}" for one in pair) for pair in pairs)
            print(f"| {cell} | {width} | " + " | ".join(times) + " |")
    else:
        measure(options.out)


if __name__ == "__main__":
    main()
