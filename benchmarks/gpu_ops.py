"""Check, then time all ops that run on a GPU through Triton, CUDA graphs or chunks, in one call.

    python benchmarks/gpu_ops.py [--json FILE] [--only PART ...]

The parts are independent: one that fails is reported and the others continue. Outputs, final states and every gradient
are compared with the equation in float64, and the error of the PyTorch implementation in the same precision is shown
too. Times are medians of forward and backward in milliseconds, interleaved. `decode` compares with `transformers` if it
is installed, and otherwise with our own steps without a graph.
"""

import argparse
import json
import statistics
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from command_line import need_gpu
from torch import Tensor

from statewise.decoding import Sampling, begin, extend, graph
from statewise.kernels.cross_entropy import total_nats
from statewise.kernels.gated_delta import chunked as delta_chunked
from statewise.kernels.gated_delta import naive as delta_naive
from statewise.kernels.linear_attention import chunked as linear_chunked
from statewise.kernels.linear_attention import naive as linear_naive
from statewise.kernels.scan import naive as scan_naive
from statewise.kernels.scan import parallel as scan_parallel
from statewise.kernels.short_convolution import naive as convolution_naive
from statewise.kernels.ttt import Carried, InnerNorm
from statewise.kernels.ttt import dual as ttt_dual
from statewise.kernels.with_triton import load
from statewise.models import build

Row = dict[str, Any]
Form = Callable[[list[Tensor], list[Tensor]], Sequence[Tensor]]
CUDA = torch.device("cuda")


def noise(*shape: int, seed: int, scale: float = 1.0) -> Tensor:
    generator = torch.Generator(CUDA).manual_seed(seed)
    return scale * torch.randn(*shape, generator=generator, device=CUDA)


def everything(run: Form, inputs: Sequence[Tensor], states: Sequence[Tensor]) -> list[Tensor]:
    """Outputs and states, and the gradients of a fixed random sum of them."""
    groups = [[p.detach().clone().requires_grad_(p.is_floating_point()) for p in group] for group in (inputs, states)]
    results = [part for part in run(*groups) if part.is_floating_point()]
    total = sum((part.double() * noise(*part.shape, seed=n).double()).sum() for n, part in enumerate(results))
    wanted = [part for group in groups for part in group if part.requires_grad]
    gradients = torch.autograd.grad(total, wanted, allow_unused=True, materialize_grads=True)
    return [part.detach() for part in results] + list(gradients)


def errors(run: Form, inputs: Sequence[Tensor], states: Sequence[Tensor], exact: list[Tensor]) -> float:
    """The largest error of any result or gradient, relative to its norm."""
    found = everything(run, inputs, states)
    ratios = [float((a.double() - b).norm() / b.norm().clamp(min=1e-12)) for a, b in zip(found, exact, strict=True)]
    return max(ratio if ratio == ratio else float("inf") for ratio in ratios)


def medians(runs: dict[str, Callable[[], Any]], repeats: int = 7, slow: Sequence[str] = ()) -> dict[str, float]:
    """Milliseconds of each, interleaved; those in `slow` are run twice only."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(repeats + 2):
        for name, run in runs.items():
            if name in slow and turn > 2:
                continue
            torch.cuda.synchronize()
            began = time.perf_counter()
            run()
            torch.cuda.synchronize()
            if turn > (0 if name in slow else 1):
                times[name].append(1e3 * (time.perf_counter() - began))
    return {name: statistics.median(kept) for name, kept in times.items()}


def double(values: Sequence[Tensor]) -> list[Tensor]:
    return [value.double() if value.is_floating_point() else value for value in values]


def both_ways(run: Form, inputs: list[Tensor], states: list[Tensor]) -> Callable[[], Any]:
    """Forward and backward, from inputs that are there already."""
    groups = [[p.detach().clone().requires_grad_(p.is_floating_point()) for p in group] for group in (inputs, states)]
    wanted = [part for group in groups for part in group if part.requires_grad]

    def go() -> None:
        results = [part for part in run(*groups) if part.is_floating_point()]
        torch.autograd.grad([part.sum() for part in results], wanted, allow_unused=True)

    return go


def compared(name: str, ours: Form, theirs: Form, equation: Form, check: Any, sizes: dict[str, Any]) -> Iterator[Row]:
    """Errors on a small case, times on each size."""
    inputs, states = check
    exact = everything(equation, double(inputs), double(states))
    row = {
        "op": name,
        "error": errors(ours, inputs, states, exact),
        "torch_error": errors(theirs, inputs, states, exact),
    }
    for label, (big_inputs, big_states) in sizes.items():
        runs = {
            "ours_ms": both_ways(ours, big_inputs, big_states),
            "torch_ms": both_ways(theirs, big_inputs, big_states),
        }
        found = medians(runs, slow=("torch_ms",))
        yield {**row, "size": label, **found, "ratio": found["torch_ms"] / found["ours_ms"]}


# ---------------------------------------------------------------- the parts


def scan() -> Iterator[Row]:
    kernel = load("scan")

    def case(batch: int, length: int, width: int) -> tuple[list[Tensor], list[Tensor]]:
        gates = torch.sigmoid(noise(batch, length, width, seed=0, scale=2.0))
        return [gates, noise(batch, length, width, seed=1)], [noise(batch, width, seed=2)]

    def form(run: Callable[..., Any]) -> Form:
        return lambda inputs, states: run(*inputs, *states, None)

    def of_gates(run: Callable[..., Any]) -> Callable[..., Any]:
        return lambda z, x, *more: run(*scan_naive.gates(z, x), *more)

    sizes = {f"{b} x {t} x {d}": case(b, t, d) for b, t, d in ((32, 256, 512), (8, 2048, 512), (1, 16_384, 512))}
    yield from compared(
        "scan", form(kernel.scan), form(scan_parallel.scan), form(scan_naive.scan), case(3, 301, 200), sizes
    )
    forms = (form(kernel.gated_scan), *(form(of_gates(module.scan)) for module in (scan_parallel, scan_naive)))
    yield from compared("gated scan", *forms, case(3, 301, 200), sizes)


def ttt_case(
    batch: int, length: int, heads: int, head: int, hidden: int | None, mini: int, dtype: torch.dtype
) -> tuple[list[Tensor], list[Tensor]]:
    shapes = [(head, head)] if hidden is None else [(head, hidden), (hidden, head)]
    qkv = [noise(batch, length, heads, head, seed=n).to(dtype) for n in range(3)]
    rate = torch.sigmoid(noise(batch, length, heads, seed=3)).to(dtype) / head
    start = [noise(heads, *shape, seed=4 + n, scale=0.02) for n, shape in enumerate(shapes)]
    norm = [1 + noise(heads, head, seed=6, scale=0.1), noise(heads, head, seed=7, scale=0.1)]
    carried = [noise(batch, heads, *shape, seed=8 + n, scale=0.02) for n, shape in enumerate(2 * shapes)]
    left_B = 1 + torch.arange(batch, device=CUDA) * 5 % mini
    return [*qkv, rate, *start, *norm], [*carried, left_B]


def ttt_form(module: Any, layers: int, mini: int, *, widen: bool) -> Form:
    def run(inputs: list[Tensor], states: list[Tensor]) -> Sequence[Tensor]:
        start, norm = tuple(inputs[4 : 4 + layers]), InnerNorm(*inputs[-2:])
        state = Carried(tuple(states[:layers]), tuple(states[layers:-1]), states[-1])
        given = [p.to(torch.promote_types(p.dtype, torch.float32)) if widen else p for p in inputs[:4]]
        y, after = module.ttt(tuple(given), state, start, norm, mini, None)
        return (y, *after.change, *after.pending)

    return run


def ttt() -> Iterator[Row]:
    mini, layers = 16, {"linear": 1, "mlp": 2}
    for inner, hidden in (("linear", None), ("mlp", 256)):
        kernel = load("ttt", "triton" if inner == "linear" else "triton_mlp")
        for dtype in (torch.float32, torch.bfloat16) if inner == "linear" else (torch.bfloat16,):
            ours, theirs, exact = (
                ttt_form(module, layers[inner], mini, widen=widen)
                for module, widen in ((kernel, False), (ttt_dual, True), (ttt_dual, True))
            )
            sizes = {
                f"{b} x {t} x {h} heads, {dtype}": ttt_case(b, t, h, 64, hidden, mini, dtype)
                for b, t, h in ((8, 1024, 8), (16, 2048, 12))[: 1 if dtype == torch.float32 else 2]
            }
            check = ttt_case(3, 160, 2, 64, hidden, mini, dtype)
            yield from compared(f"ttt {inner}", ours, theirs, exact, check, sizes)


def along_time(run: Callable[..., Any], *, widen: bool) -> Form:
    def go(inputs: list[Tensor], states: list[Tensor]) -> Sequence[Tensor]:
        given = [p.to(torch.promote_types(p.dtype, torch.float32)) if widen else p for p in inputs]
        result: Sequence[Tensor] = run(tuple(given), *states, None)
        return result

    return go


def linear_attention() -> Iterator[Row]:
    kernel = load("linear_attention")

    def case(batch: int, length: int, heads: int, key: int, value: int, dtype: torch.dtype) -> Any:
        q, k = (noise(batch, length, heads, key, seed=n, scale=key**-0.5).to(dtype) for n in range(2))
        v = noise(batch, length, heads, value, seed=2).to(dtype)
        g = -0.1 * noise(batch, length, heads, seed=3).abs()
        return [q, k, v, g], [noise(batch, heads, key, value, seed=4)]

    for dtype in (torch.float32, torch.bfloat16):
        sizes = {
            f"{b} x {t} x {h} x {k} x {v}, {dtype}": case(b, t, h, k, v, dtype)
            for b, t, h, k, v in ((8, 2048, 8, 64, 64), (16, 2048, 12, 64, 65))
        }
        yield from compared(
            "linear attention",
            along_time(kernel.linear_attention, widen=False),
            along_time(linear_chunked.linear_attention, widen=True),
            along_time(linear_naive.linear_attention, widen=True),
            case(3, 150, 2, 64, 65, dtype),
            sizes,
        )


def gated_delta() -> Iterator[Row]:
    kernel = load("gated_delta")

    def case(batch: int, length: int, heads: int, head: int, dtype: torch.dtype) -> Any:
        q, k = (torch.nn.functional.normalize(noise(batch, length, heads, head, seed=n), dim=-1) for n in range(2))
        v = noise(batch, length, heads, head, seed=2)
        beta = torch.sigmoid(noise(batch, length, heads, seed=3))
        g = -0.1 * noise(batch, length, heads, seed=4).abs()
        return [*(part.to(dtype) for part in (q, k, v, beta)), g], [noise(batch, heads, head, head, seed=5)]

    for dtype in (torch.float32, torch.bfloat16):
        sizes = {
            f"{b} x {t} x {h} x {k}, {dtype}": case(b, t, h, k, dtype)
            for b, t, h, k in ((64, 256, 6, 64), (8, 2048, 8, 64), (8, 2048, 4, 128))
        }
        yield from compared(
            "gated delta",
            along_time(kernel.gated_delta, widen=False),
            along_time(delta_chunked.gated_delta, widen=True),
            along_time(delta_naive.gated_delta, widen=True),
            case(3, 150, 2, 64, dtype),
            sizes,
        )


def short_convolution() -> Iterator[Row]:
    kernel = load("short_convolution")

    def case(batch: int, length: int, channels: int, dtype: torch.dtype) -> tuple[list[Tensor], list[Tensor]]:
        inputs = [noise(batch, length, channels, seed=0).to(dtype), noise(channels, 4, seed=1)]
        return inputs, [noise(batch, 3, channels, seed=2)]

    def form(run: Callable[..., Any]) -> Form:
        return lambda inputs, states: run(inputs[0], states[0], inputs[1], None, True)

    for dtype in (torch.float32, torch.bfloat16):
        sizes = {f"{b} x {t} x {c}, {dtype}": case(b, t, c, dtype) for b, t, c in ((64, 256, 1152), (8, 2048, 2304))}
        ours, theirs = form(kernel.short_convolution), form(convolution_naive.short_convolution)
        yield from compared("short convolution", ours, theirs, theirs, case(3, 150, 200, dtype), sizes)


def cross_entropy() -> Iterator[Row]:
    for tokens, width, vocab in ((8192, 384, 65), (8192, 512, 5000), (8192, 768, 50_257), (16_384, 1024, 128_000)):
        inputs = [noise(tokens, width, seed=0), noise(vocab, width, seed=1, scale=width**-0.5), noise(vocab, seed=2)]
        target_N = torch.randint(vocab, (tokens,), device=CUDA, generator=torch.Generator(CUDA).manual_seed(3))

        def run(form: Any, few: int, given: list[Tensor], target_N: Tensor = target_N) -> list[Tensor]:
            y, w, c = (part.detach().requires_grad_() for part in given)
            with torch.autocast("cuda", torch.bfloat16, enabled=y.dtype == torch.float32):
                total = total_nats(y[:few], w, c, target_N[:few], form=form)
            return [total.detach(), *torch.autograd.grad(total / few, [y, w, c])]

        few = 1024
        exact = run("naive", few, double(inputs))
        row: Row = {"op": "cross_entropy", "size": f"{tokens} x {width} x {vocab}"}
        for form, key in (("chunked", "error"), ("naive", "torch_error")):
            found = run(form, few, inputs)
            row[key] = max(float((a.double() - b).norm() / b.norm()) for a, b in zip(found, exact, strict=True))
        del exact, found
        forms = {"ours_ms": "chunked", "torch_ms": "naive"}
        row |= medians({key: partial(run, form, tokens, inputs) for key, form in forms.items()})
        row["ratio"] = row["torch_ms"] / row["ours_ms"]
        for form, key in (("chunked", "ours_MiB"), ("naive", "torch_MiB")):
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            before = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
            run(form, tokens, inputs)
            row[key] = (torch.cuda.max_memory_allocated() - before) // 2**20
        yield row


def decode() -> Iterator[Row]:
    """Our loop with and without a graph, for each kind of state; greedy tokens must agree bit by bit."""
    options = {"vocab": 50_257, "width": 768, "depth": 12, "tie": True}
    kinds: dict[str, dict[str, Any]] = {
        "transformer": {"heads": 12, "position": "learned", "context": 1024},
        "lstm": {"depth": 4},
        "mingru": {"depth": 4},
        "ttt_linear": {"depth": 4, "heads": 12},
    }
    for kind, more in kinds.items():
        try:
            yield from _decode_one(kind, {**options, **more})
        except Exception as error:
            yield {"op": f"decode {kind}", "failed": repr(error)[:300]}


@torch.no_grad()
def _decode_one(kind: str, options: dict[str, Any], tokens: int = 64) -> Iterator[Row]:
    model = build(kind, **options).eval().to(CUDA, torch.bfloat16)
    for p in model.parameters():
        p.mul_(1.5)  # as they come, logits are so close that rounding would choose
    for batch in (1, 64, 256) if kind == "transformer" else (1, 64):
        prompt_BT = torch.randint(50_257, (batch, 16), device=CUDA, generator=torch.Generator(CUDA).manual_seed(1))

        def run(sampling: Sampling, prompt_BT: Tensor = prompt_BT) -> Tensor:
            return extend(model, begin(model, prompt_BT, vocab=50_257), sampling, tokens=tokens)[0]

        def steps(sampling: Sampling) -> Tensor:
            real, graph.obstacle = graph.obstacle, lambda model, device: "asked for"
            try:
                return run(sampling)
            finally:
                graph.obstacle = real

        row: Row = {"op": f"decode {kind}", "size": f"batch {batch}, {tokens} tokens"}
        greedy, drawn = Sampling(temperature=0), Sampling(temperature=0.9, top_p=0.95, top_k=200, seed=5)
        for name, sampling in (("greedy", greedy), ("drawn", drawn)):
            row[f"same_{name}"] = float((run(sampling) == steps(sampling)).double().mean())
        found = medians({"ours_ms": partial(run, greedy), "torch_ms": partial(steps, greedy)}, repeats=3)
        row |= found | {"ratio": found["torch_ms"] / found["ours_ms"]}
        row["tokens_per_second"] = 1e3 * batch * tokens / found["ours_ms"]
        row["error"], row["torch_error"] = 1 - row["same_greedy"], 0.0
        row["why_not"] = graph.obstacle(model, CUDA)
        yield row


PARTS = {
    "scan": scan,
    "ttt": ttt,
    "linear_attention": linear_attention,
    "gated_delta": gated_delta,
    "short_convolution": short_convolution,
    "decode": decode,
    "cross_entropy": cross_entropy,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    need_gpu()
    print(torch.__version__, torch.cuda.get_device_name(), "transformers" if find_spec("transformers") else "")
    rows: list[Row] = []
    heading = f"{'op':<22} {'size':<36} {'ours ms':>9} {'torch ms':>9} {'ratio':>7} {'error':>9} {'torch':>9}"
    print(heading)
    for name in asked.only:
        began = time.perf_counter()
        try:
            for row in PARTS[name]():
                rows.append(row)
                if "failed" in row:
                    print(f"{row['op']:<22} FAILED {row['failed']}", flush=True)
                    continue
                more = {k: v for k, v in row.items() if k not in ("op", "size", "ours_ms", "torch_ms", "ratio")}
                print(
                    f"{row['op']:<22} {row['size']:<36} {row['ours_ms']:>9.3f} {row['torch_ms']:>9.3f} "
                    f"{row['ratio']:>6.1f}x {more.pop('error'):>9.1e} {more.pop('torch_error'):>9.1e} {more or ''}",
                    flush=True,
                )
                if asked.json:
                    asked.json.write_text(json.dumps(rows, indent=1))
        except Exception:
            rows.append({"op": name, "failed": traceback.format_exc()})
            print(f"{name} FAILED\n{traceback.format_exc()[-1500:]}", flush=True)
        print(f"({name}: {time.perf_counter() - began:.0f} s)", flush=True)
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
