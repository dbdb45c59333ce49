"""The loss of a language model over a large vocabulary: in chunks, against all logits at once.

    python benchmarks/cross_entropy.py                   on the CPU
    python benchmarks/cross_entropy.py --device cuda     in bfloat16, and with the memory at its peak

Forward and backward, interleaved, medians. The memory column is the peak, including inputs and gradients; on a CPU it
is counted op by op. The last column is the largest error of the gradients, each relative to its norm, against float64
(on CUDA in bfloat16, next to the error of all logits at once).
"""

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from command_line import console, device_of, need_gpu
from rich.table import Table
from torch import Tensor

from statewise.kernels.cross_entropy import Form, total_nats
from statewise.training.planning import Alive

CASES = {
    "cpu": ((512, 128, 65), (2048, 128, 1000), (2048, 256, 5000), (1024, 256, 20_000), (512, 768, 50_257)),
    "cuda": ((4096, 384, 65), (8192, 512, 5000), (8192, 768, 50_257), (16_384, 1024, 128_000)),
}
FORMS: tuple[Form, Form] = ("naive", "chunked")


def make(tokens: int, width: int, vocab: int, device: torch.device) -> tuple[list[Tensor], Tensor]:
    generator = torch.Generator(device).manual_seed(0)
    inputs = [
        scale * torch.randn(*shape, device=device, generator=generator)
        for scale, shape in ((1.0, (tokens, width)), (width**-0.5, (vocab, width)), (0.1, (vocab,)))
    ]
    return inputs, torch.randint(vocab, (tokens,), device=device, generator=generator)


def run(form: Form, inputs: list[Tensor], target_N: Tensor) -> list[Tensor]:
    given = [part.detach().requires_grad_() for part in inputs]
    narrow = target_N.device.type == "cuda" and inputs[0].dtype == torch.float32
    with torch.autocast(target_N.device.type, torch.bfloat16, enabled=narrow):
        total = total_nats(*given[:2], given[2], target_N, form=form)
    return [total.detach(), *torch.autograd.grad(total / len(target_N), given)]


def peak_bytes(form: Form, inputs: list[Tensor], target_N: Tensor) -> int:
    if target_N.device.type == "cuda":
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        run(form, inputs, target_N)
        return torch.cuda.max_memory_allocated() - before
    with Alive() as alive:
        run(form, inputs, target_N)
    return alive.peak


def error(form: Form, inputs: list[Tensor], target_N: Tensor, exact: list[Tensor]) -> float:
    found = run(form, inputs, target_N)
    return max(float((a.double() - b).norm() / b.norm()) for a, b in zip(found, exact, strict=True))


def measure(tokens: int, width: int, vocab: int, device: torch.device, repeats: int) -> dict[str, Any]:
    inputs, target_N = make(tokens, width, vocab, device)
    row: dict[str, Any] = {"tokens": tokens, "width": width, "vocab": vocab}
    times: dict[Form, list[float]] = {form: [] for form in FORMS}
    for turn in range(repeats + 1):
        for form in FORMS:
            if device.type == "cuda":
                torch.cuda.synchronize()
            began = time.perf_counter()
            run(form, inputs, target_N)
            if device.type == "cuda":
                torch.cuda.synchronize()
            if turn:
                times[form].append(1e3 * (time.perf_counter() - began))
    few = min(tokens, 2048)  # float64 logits of all tokens would not fit
    some = [inputs[0][:few], *inputs[1:]]
    exact = run("naive", [part.double() for part in some], target_N[:few])
    for form in FORMS:
        row[f"{form}_ms"] = statistics.median(times[form])
        row[f"{form}_bytes"] = peak_bytes(form, inputs, target_N)
        row[f"{form}_error"] = error(form, some, target_N[:few], exact)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description="Cross-entropy over a large vocabulary, in chunks or written out.")
    parser.add_argument("--device", type=device_of, default="cpu")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    device = asked.device
    need_gpu(device)
    where = f"{torch.get_num_threads()} threads" if device.type == "cpu" else torch.cuda.get_device_name(device)
    table = Table(title=f"Loss over a vocabulary, forward and backward, {where}", title_justify="left")
    for heading in ("tokens x width x vocabulary", "written out", "chunks", "ratio", "memory", "error"):
        table.add_column(heading, justify="right")
    rows = []
    for case in CASES[device.type]:
        row = measure(*case, device, asked.repeats)
        rows.append(row)
        table.add_row(
            " x ".join(f"{n:,}" for n in case),
            f"{row['naive_ms']:.1f} ms",
            f"{row['chunked_ms']:.1f} ms",
            f"{row['naive_ms'] / row['chunked_ms']:.2f}x",
            f"{row['naive_bytes'] / 2**20:,.0f} → {row['chunked_bytes'] / 2**20:,.0f} MiB",
            f"{row['naive_error']:.0e}, {row['chunked_error']:.0e}",
        )
    console().print(table)
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
