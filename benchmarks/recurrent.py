"""Recurrent layers on a GPU against cuDNN: errors, times, repeatability, company.

    python benchmarks/recurrent.py --check             # every output and gradient against float64, beside cuDNN's error
    python benchmarks/recurrent.py --time              # the grid of widths and batches, microseconds a step
    python benchmarks/recurrent.py --safe              # 100 equal repetitions; other work on the GPU meanwhile
    python benchmarks/recurrent.py --report times.json # the tables of docs/performance.md from a written file

Both sides run through autograd, allocation included, one after the other in one process; times are medians over
several rounds of calls without a synchronisation between them, as in training. "cuDNN best" is the fastest of
bfloat16 and float16, both under a CUDA graph. `--out FOLDER` receives the numbers as JSON.
"""

import argparse
import json
import math
import os
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from statewise.kernels import persistent
from statewise.kernels.choice import force
from statewise.mixers import GRU, LSTM, Elman

CELLS: dict[str, tuple[Callable[..., Any], Callable[..., nn.RNNBase], int]] = {
    "elman": (Elman, nn.RNN, 1),
    "gru": (GRU, nn.GRU, 3),
    "lstm": (LSTM, nn.LSTM, 4),
}
WIDTHS, BATCHES, STEPS = (128, 256, 512, 768, 1024, 1536, 2048), (1, 16, 64, 256), 512


class Case(NamedTuple):
    cell: str
    width: int
    batch: int
    time: int
    inputs: int
    dtype: torch.dtype
    lengths: list[int] | None = None
    activation: str = "tanh"

    @property
    def label(self) -> str:
        kind = self.activation if self.cell == "elman" else self.cell
        rows = "" if self.lengths is None else " ragged"
        return f"{kind} {self.width}x{self.batch} T{self.time} I{self.inputs} {str(self.dtype)[6:]}{rows}"


def mixer(case: Case, seed: int = 0) -> Any:
    made = CELLS[case.cell][0]
    extra = {"activation": case.activation} if case.cell == "elman" else {}
    module = made(case.width, input_width=case.inputs, **extra).cuda()
    generator = torch.Generator(device="cuda").manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.uniform_(-1, 1, generator=generator).div_(math.sqrt(case.width))
    return module.to(case.dtype)


def twin(case: Case, module: Any) -> nn.RNNBase:
    """torch.nn's module with the same weights."""
    extra = {"nonlinearity": case.activation} if case.cell == "elman" else {}
    other = CELLS[case.cell][1](case.inputs, case.width, **extra).cuda().to(case.dtype)
    w, u, b, *b_u = [parameter.detach() for parameter in module.parameters()]
    with torch.no_grad():
        other.weight_ih_l0.copy_(w)
        other.weight_hh_l0.copy_(u)
        other.bias_ih_l0.copy_(b)
        other.bias_hh_l0.zero_()
        if b_u:
            other.bias_hh_l0[2 * case.width :].copy_(b_u[0])
    other.flatten_parameters()
    return other


def draw(case: Case, seed: int = 1) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """Input, state, and the gradients of the outputs."""
    generator = torch.Generator(device="cuda").manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, device="cuda").to(case.dtype)

    parts = 2 if case.cell == "lstm" else 1
    x_TBI = normal(case.time, case.batch, case.inputs)
    state = [normal(case.batch, case.width).mul_(0.5) for _ in range(parts)]
    gradients = [normal(case.time, case.batch, case.width), *(normal(case.batch, case.width) for _ in range(parts))]
    return x_TBI, state, gradients


def ours(module: Any, case: Case, x_TBI: Tensor, state: list[Tensor], gradients: list[Tensor]) -> dict[str, Tensor]:
    """Outputs and all gradients by one implementation (whatever the choice is, inside `force` or not)."""
    x_TBI = x_TBI.clone().requires_grad_()
    leaves = [part.clone().requires_grad_() for part in state]
    lengths_B = None if case.lengths is None else torch.tensor(case.lengths, device="cuda")
    start = type(module.init_state(1))(*leaves) if case.cell == "lstm" else _state(module, leaves)
    y_BTD, after = module(x_TBI.transpose(0, 1), start, lengths_B)
    outputs = [y_BTD.transpose(0, 1), *_leaves(after)]
    parameters = dict(module.named_parameters())
    named = {"x": x_TBI, **{f"state {n}": leaf for n, leaf in enumerate(leaves)}, **parameters}
    found = torch.autograd.grad(outputs, list(named.values()), [g.to(o.dtype) for g, o in zip(gradients, outputs)])
    return {
        "y": outputs[0].detach(),
        **{f"last {n}": part.detach() for n, part in enumerate(outputs[1:])},
        **{f"d {name}": gradient for name, gradient in zip(named, found, strict=True)},
    }


def _state(module: Any, leaves: list[Tensor]) -> Any:
    initial = module.init_state(1)
    return leaves[0] if isinstance(initial, Tensor) else type(initial)(*leaves)


def _leaves(state: Any) -> list[Tensor]:
    return [state] if isinstance(state, Tensor) else list(state)


def errors(found: dict[str, Tensor], right: dict[str, Tensor]) -> dict[str, float]:
    return {
        name: float((found[name].double() - right[name]).norm() / right[name].norm().clamp(min=1e-12))
        if bool(torch.isfinite(found[name]).all())
        else math.inf
        for name in right
    }


def poison() -> None:
    """Leave NaN in the memory that torch.empty will hand out next."""
    blocks = [torch.full((size,), math.nan, device="cuda") for size in (1 << 26, 1 << 24, 1 << 22, 1 << 20, 1 << 16)]
    del blocks


def check_cases() -> Iterator[Case]:
    ragged = [12, 0, 1, 6, 11]
    for dtype in (torch.bfloat16, torch.float16):
        for cell in CELLS:
            for width in WIDTHS:
                for batch in (1, 16, 64, 256) if dtype == torch.bfloat16 else (16,):
                    yield Case(cell, width, batch, 33, width, dtype)
            for width, inputs in ((200, 100), (650, 65), (1150, 400), (1500, 1500)):
                yield Case(cell, width, 20, 12, inputs, dtype, ragged * 4)
            for time_ in (1, 2):
                yield Case(cell, 256, 5, time_, 64, dtype)
                yield Case(cell, 1024, 3, time_, 64, dtype)
        yield Case("elman", 256, 7, 33, 256, dtype, activation="relu")
        yield Case("elman", 1024, 7, 33, 256, dtype, activation="relu")
    yield Case("lstm", 512, 8, 2048, 64, torch.bfloat16)
    yield Case("gru", 512, 8, 2048, 64, torch.bfloat16)


def check(rows: list[dict[str, Any]]) -> None:
    """Ours within 1.5 times cuDNN's own error, for every tensor."""
    for case in check_cases():
        try:
            module, drawn = mixer(case), draw(case)
            chosen = module_choice(module, case)
            with force("naive"):
                exact = mixer(case).double()
                exact.load_state_dict({name: value.double() for name, value in module.state_dict().items()})
                right = ours(exact, case, drawn[0].double(), [s.double() for s in drawn[1]], list(drawn[2]))
            with force("fused"):
                theirs = errors(ours(module, case, *drawn), right)
            row: dict[str, Any] = {"check": case.label, "choice": chosen}
            if chosen == "persistent":
                poison()
                mine = errors(ours(module, case, *drawn), right)
                with persistent.remember("cell"):
                    again = errors(ours(module, case, *drawn), right)
                persistent.raise_if_stalled(wait=True)
                ratios = {name: mine[name] / max(theirs[name], 1e-4) for name in mine}
                worst = max(ratios, key=lambda name: ratios[name])
                row |= {"worst": worst, "error": mine[worst], "cudnn": theirs[worst], "ratio": ratios[worst]}
                row |= {
                    "largest": max(mine.values()),
                    "recomputed": max(again[n] / max(theirs[n], 1e-4) for n in again),
                }
                row["ok"] = ratios[worst] <= 1.5 and row["recomputed"] <= 2.0
        except Exception as error:
            row = {"check": case.label, "failed": repr(error)[:400], "ok": False}
        rows.append(row)
        print(json.dumps(row), flush=True)


def module_choice(module: Any, case: Case) -> str:
    kernel = __import__(f"statewise.kernels.{case.cell}", fromlist=["choice"])
    return str(kernel.choice(module.weights(), batch=case.batch).implementation)


def rounds(runs: dict[str, Callable[[], object]], count: int, in_a_row: int) -> dict[str, float]:
    """Median microseconds a step of each, interleaved."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(count + 1):
        for name, run in runs.items():
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            run()
            begin.record()
            for _ in range(in_a_row):
                run()
            end.record()
            torch.cuda.synchronize()
            if turn:
                times[name].append(begin.elapsed_time(end) * 1e3 / in_a_row / STEPS)
    return {name: statistics.median(values) for name, values in times.items()}


def graphed(run: Callable[[], object]) -> Callable[[], object]:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def training(
    call: Callable[[Tensor], Tensor], parameters: list[Tensor], x_TBI: Tensor, dy: Tensor
) -> Callable[[], object]:
    leaf = x_TBI.clone().requires_grad_()

    def run() -> object:
        return torch.autograd.grad(call(leaf), [leaf, *parameters], dy)

    return run


def reading(call: Callable[[Tensor], Tensor], x_TBI: Tensor) -> Callable[[], object]:
    def run() -> object:
        with torch.no_grad():
            return call(x_TBI)

    return run


def measure(rows: list[dict[str, Any]], widths: tuple[int, ...], batches: tuple[int, ...], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    for width in widths:
        for batch in batches:
            for cell in CELLS:
                if time.monotonic() > deadline:
                    print("out of time", flush=True)
                    return
                row: dict[str, Any] = {"cell": cell, "width": width, "batch": batch}
                try:
                    row |= measure_one(Case(cell, width, batch, STEPS, width, torch.bfloat16))
                except Exception as error:
                    row["failed"] = repr(error)[:300]
                rows.append(row)
                print(json.dumps(row), flush=True)
                torch.cuda.empty_cache()


def measure_one(case: Case) -> dict[str, Any]:
    module = mixer(case)
    runs: dict[str, dict[str, Callable[[], object]]] = {"forward": {}, "training": {}}
    x_TBI, _, gradients = draw(case)
    dy = gradients[0]

    def mine(x: Tensor) -> Tensor:
        return module(x.transpose(0, 1))[0].transpose(0, 1)

    def cudnn(other: nn.RNNBase) -> Callable[[Tensor], Tensor]:
        return lambda x: other(x)[0]

    runs["training"]["ours"] = training(mine, list(module.parameters()), x_TBI, dy)
    runs["forward"]["ours"] = reading(mine, x_TBI)
    for dtype, name in ((torch.bfloat16, "bf16"), (torch.float16, "fp16")):
        other = twin(case._replace(dtype=dtype), module)
        their_x, their_dy = x_TBI.to(dtype), dy.to(dtype)
        train = training(cudnn(other), list(other.parameters()), their_x, their_dy)
        read = reading(cudnn(other), their_x)
        if name == "bf16":
            runs["training"]["eager"], runs["forward"]["eager"] = train, read
        runs["training"][f"graph {name}"], runs["forward"][f"graph {name}"] = graphed(train), graphed(read)
    row: dict[str, Any] = {"choice": module_choice(module, case)}
    for way, several in runs.items():
        row[way] = {name: round(us, 3) for name, us in rounds(several, 3, 2).items()}
    persistent.raise_if_stalled(wait=True)
    return row


def safe(rows: list[dict[str, Any]]) -> None:
    shapes = [
        ("lstm", 128, 16),
        ("lstm", 512, 64),
        ("gru", 1024, 16),
        ("lstm", 1024, 64),
        ("elman", 2048, 16),
        ("gru", 256, 64),
    ]
    for cell, width, batch in shapes:
        case = Case(cell, width, batch, 64, width, torch.bfloat16)
        module, drawn = mixer(case), draw(case)
        first = ours(module, case, *drawn)
        equal = all(
            all(torch.equal(a, b) for a, b in zip(first.values(), ours(module, case, *drawn).values()))
            for _ in range(100)
        )
        persistent.raise_if_stalled(wait=True)
        rows.append({"repeated": case.label, "choice": module_choice(module, case), "equal": equal})
        print(json.dumps(rows[-1]), flush=True)
    company(rows, seconds=6.0)


def company(rows: list[dict[str, Any]], seconds: float) -> None:
    """Our kernels on two streams at once while a third fills the chip with matrix products."""
    cases = [Case("lstm", 1024, 64, 256, 1024, torch.bfloat16), Case("gru", 1024, 16, 256, 1024, torch.bfloat16)]
    work = [(case, mixer(case), draw(case)) for case in cases]
    expected = [ours(module, case, *drawn) for case, module, drawn in work]
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    streams = [torch.cuda.Stream() for _ in range(3)]
    torch.cuda.synchronize()
    began, turns, equal = time.monotonic(), 0, True
    while time.monotonic() - began < seconds:
        with torch.cuda.stream(streams[2]):
            for _ in range(4):
                a @ a
        found = []
        for stream, (case, module, drawn) in zip(streams, work):
            with torch.cuda.stream(stream):
                found.append(ours(module, case, *drawn))
        torch.cuda.synchronize()
        equal &= all(torch.equal(f[k], e[k]) for f, e in zip(found, expected) for k in f)
        turns += 1
    persistent.raise_if_stalled(wait=True)
    rows.append({"company": [case.label for case in cases], "turns": turns, "seconds": seconds, "equal": equal})
    print(json.dumps(rows[-1]), flush=True)


def report(rows: list[dict[str, Any]]) -> None:
    """Markdown: microseconds a step and ratios, geometric means, worst cells."""
    for way in ("training", "forward"):
        eager, best = [], []
        title = {"training": "forward + backward", "forward": "forward alone, no gradient"}[way]
        print(f"\n### {title}\n\n| cell | width | batch | runs | ours | cuDNN eager | cuDNN best | × eager | × best |")
        print("|---|---|---|---|---|---|---|---|---|")
        for row in sorted((r for r in rows if way in r), key=lambda r: list(CELLS).index(r["cell"])):
            us = row[way]
            fastest = min(value for name, value in us.items() if name.startswith("graph"))
            eager.append((us["eager"] / us["ours"], row))
            best.append((fastest / us["ours"], row))
            cells = [row["cell"], row["width"], row["batch"], row["choice"], f"{us['ours']:.2f}", f"{us['eager']:.2f}"]
            cells += [f"{fastest:.2f}", f"{eager[-1][0]:.1f}", f"{best[-1][0]:.2f}"]
            print("| " + " | ".join(map(str, cells)) + " |")
        for name, ratios in (("eager", eager), ("best", best)):
            mean = math.exp(statistics.fmean(math.log(ratio) for ratio, _ in ratios))
            low, row = min(ratios, key=lambda pair: pair[0])
            where = f"{row['cell']} {row['width']}x{row['batch']}"
            print(f"\nOver cuDNN {name}: geometric mean {mean:.2f}, worst {low:.2f} ({where}), {len(ratios)} cells.")


def main() -> None:
    os.environ["STATEWISE_UNPROVEN"] = "1"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for mode in ("check", "time", "safe"):
        parser.add_argument(f"--{mode}", action="store_true")
    parser.add_argument("--report", type=Path)
    parser.add_argument("--widths", type=int, nargs="*", default=list(WIDTHS))
    parser.add_argument("--batches", type=int, nargs="*", default=list(BATCHES))
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--out", type=Path, default=Path())
    options = parser.parse_args()
    if options.report is not None:
        report(json.loads(options.report.read_text()))
        return
    torch.backends.cudnn.benchmark = False
    print(
        f"# torch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}, {torch.cuda.get_device_name()}",
        flush=True,
    )
    steps: dict[str, Callable[[list[dict[str, Any]]], None]] = {
        "check": check,
        "safe": safe,
        "time": lambda rows: measure(rows, tuple(options.widths), tuple(options.batches), options.seconds),
    }
    for name, step in steps.items():
        if getattr(options, name):
            rows: list[dict[str, Any]] = []
            try:
                step(rows)
            finally:
                (options.out / f"recurrent_{name}.json").write_text(json.dumps(rows))
            if name == "time":
                report(rows)


if __name__ == "__main__":
    main()
