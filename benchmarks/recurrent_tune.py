"""Plans of the persistent kernels, each checked against float64 and timed alone, and the resulting table.

    python benchmarks/recurrent_tune.py                      # on a Hopper GPU: a line of JSON per plan, into tune.jsonl
    python benchmarks/recurrent_tune.py --kinds wide --widths 768 1024 --batches 256   # only some
    python benchmarks/recurrent_tune.py --compile            # before that, anywhere: fill the cache, on all cores
    python benchmarks/recurrent_tune.py --report tune.jsonl  # the fastest of each shape, forward / backward
    python benchmarks/recurrent_tune.py --table tune.jsonl   # the rows of kernels/persistent/h200.csv

Time is that of the kernel alone: no product before or after it, no autograd. The cost model in
`kernels/persistent/table.py` proposes plans; the GPU decides. Plans that are already in the file are not run again.
The work runs in a separate process, which is restarted after a plan that crashes it.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import torch
from command_line import need_gpu, readable
from torch import Tensor

from statewise.kernels.elman import ElmanWeights, elman_step
from statewise.kernels.gpu import H200
from statewise.kernels.gru import GRUWeights, gru_step
from statewise.kernels.lstm import LSTMWeights, lstm_step
from statewise.kernels.persistent.compiler import machine_code
from statewise.kernels.persistent.driver import Kernel, Run, kernel, launch, pointer
from statewise.kernels.persistent.plan import GATES, Cell, Direction, Kind, Plan
from statewise.kernels.persistent.stall import address, raise_if_stalled
from statewise.kernels.persistent.table import BATCHES, WIDTHS, proposals

CELLS: tuple[Cell, ...] = ("lstm", "gru", "tanh")
WAYS: tuple[Direction, ...] = ("forward", "backward")
COUNTS: dict[Kind, int] = {"cluster": 4, "polled": 8, "wide": 4}


class Trial(NamedTuple):
    batch: int
    plan: Plan

    @classmethod
    def read(cls, line: str) -> "Trial":
        row = json.loads(line)
        return cls(row["batch"], Plan(*row["plan"]))

    @property
    def line(self) -> str:
        return json.dumps({"batch": self.batch, "plan": list(self.plan)})


def trials(options: argparse.Namespace) -> Iterator[Trial]:
    """Those of a file, or what the model proposes for the shapes asked for."""
    if options.plans is not None:
        yield from map(Trial.read, options.plans.read_text().splitlines())
        return
    counts = {kind: options.count or COUNTS[kind] for kind in options.kinds}
    for width, cell, batch, way in product(options.widths, options.cells, options.batches, options.ways):
        for plan in proposals(cell, way, width, batch, H200, counts):
            yield Trial(batch, plan)


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
    loaded: Kernel,
    data: dict[str, Tensor],
    time: int,
    batch: int,
    kept: dict[str, Tensor],
    ends_B: Tensor | None,
    *,
    patience: float = 1.0,
) -> dict[str, Tensor]:
    """One launch; everything it should write holds NaN before. `kept` is what a forward has left for backward."""
    plan = loaded.plan
    gates, width, nan = GATES[plan.cell], plan.width, float("nan")

    def marked(*shape: int) -> Tensor:
        return torch.full(shape, -1, dtype=torch.int16, device="cuda")

    h_out, c_out = (torch.full((batch, width), nan, device="cuda") for _ in range(2))
    counters = torch.zeros(time, plan.grid(batch)[1], plan.turns, dtype=torch.int32, device="cuda")
    run = Run(b_u=pointer(data["b_u"]), c0=pointer(data["c"]), lengths=pointer(ends_B), counters=pointer(counters))
    run.h_out, run.c_out, run.T, run.B = pointer(h_out), pointer(c_out), time, batch
    run.alarm, run.patience = address(), int(patience * 1e9)
    found = {"h": h_out, "c": c_out}
    if plan.direction == "forward":
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
    if plan.direction == "forward":
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


def work(given: list[Trial]) -> None:
    """One line of JSON each."""
    key, short, steps = None, 9, 256
    for trial in given:
        batch, plan = trial
        row: dict[str, Any] = {"batch": batch, "plan": list(plan)}
        try:
            if key != (plan.cell, plan.width, batch):
                key = (plan.cell, plan.width, batch)
                small, large = (draw(*key, steps_) for steps_ in (short, steps))
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
    machine_code(plan, half=False, gpu=H200)


def compile_all(given: list[Trial]) -> None:
    with ProcessPoolExecutor() as pool:
        list(pool.map(compile_one, dict.fromkeys(trial.plan for trial in given), chunksize=4))


def measure(given: list[Trial], path: Path, seconds: float) -> None:
    """All that the file has not; a plan that ends the process is noted, and the others go on."""
    deadline = time.monotonic() + seconds
    known = set(map(Trial.read, path.read_text().splitlines())) if path.exists() else set()
    left = [trial for trial in dict.fromkeys(given) if trial not in known]
    with path.open("a") as file:
        while left:
            command = [sys.executable, __file__, "--work"]
            with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
                assert process.stdin is not None
                assert process.stdout is not None
                process.stdin.write("\n".join(trial.line for trial in left))
                process.stdin.close()
                for line in process.stdout:
                    file.write(line)
                    file.flush()
                    left = left[1:]
                    if time.monotonic() > deadline:
                        process.terminate()
                        print(f"out of time: {len(left)} plans are left", flush=True)
                        return
            if left:
                refusal = {"refused": f"ended the process ({process.returncode})"}
                file.write(json.dumps(json.loads(left[0].line) | refusal) + "\n")
                left = left[1:]


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
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--report", type=readable)
    parser.add_argument("--table", type=readable)
    parser.add_argument("--plans", type=readable, help="a file with lines as --out has them: run these")
    for name, values in {"kinds": tuple(COUNTS), "cells": CELLS, "ways": WAYS}.items():
        parser.add_argument(f"--{name}", nargs="+", choices=values, default=list(values))
    parser.add_argument("--widths", type=int, nargs="+", default=list(WIDTHS))
    parser.add_argument("--batches", type=int, nargs="+", default=list(BATCHES))
    parser.add_argument("--count", type=int, help="plans of a kind and shape")
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--out", type=Path, default=Path("tune.jsonl"))
    options = parser.parse_args()
    if options.work:
        work([Trial.read(line) for line in sys.stdin])
    elif options.compile:
        compile_all(list(trials(options)))
    elif options.table is not None:
        best = fastest(options.table)
        for (cell, way, width), shape in best.items():
            forward = best.get((cell, "forward", width), {})  # nobody else keeps what a backward reads
            for batch, (_, plan) in sorted(shape.items()):
                if batch in forward:
                    print(cell, way, width, batch, plan[0], *plan[4:], sep=",")
    elif options.report is not None:
        print("| cell | width |" + "".join(f" batch {batch} |" for batch in BATCHES))
        print("|---|---|" + "---|" * len(BATCHES))
        best = fastest(options.report)
        for cell, width in ((cell, width) for cell in CELLS for width in WIDTHS):
            pairs = [[best.get((cell, way, width), {}).get(b) for way in ("forward", "backward")] for b in BATCHES]
            times = (" / ".join("–" if one is None else f"{one[0]:.2f}" for one in pair) for pair in pairs)
            print(f"| {cell} | {width} | " + " | ".join(times) + " |")
    else:
        need_gpu()
        measure(list(trials(options)), options.out, options.seconds)


if __name__ == "__main__":
    main()
