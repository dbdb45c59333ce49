"""Layers that read a sequence in chunks, against the same layers step by step: forward and backward.

    python benchmarks/chunked.py
    python benchmarks/chunked.py --only jordan     teacher forcing at once, against free running and BPTT

Interleaved, medians, milliseconds; the last column is the largest difference of the outputs. A Jordan language model
trained by teacher forcing is compared with itself step by step, and with the same weights fed their own outputs.
"""

import statistics
import time
from typing import Any

import torch
from command_line import console, options, positive, write
from rich.table import Table
from torch import Tensor

from statewise.models import build, build_mixer
from statewise.specs import GatedDeltaSpec, LinearAttentionSpec, Mamba2Spec, TTTLinearSpec, TTTMLPSpec

WIDTH, HEADS = 128, 4
SPECS = (LinearAttentionSpec, GatedDeltaSpec, Mamba2Spec, TTTLinearSpec, TTTMLPSpec)
CASES = ((16, 64), (4, 256))
FORMS = ("naive", "batched")
JORDAN_CASES, JORDAN_WIDTH, VOCAB = ((16, 64), (16, 256), (4, 1024)), 256, 65
WAYS = {"BPTT": ("output", "naive"), "step by step": ("truth", "naive"), "at once": ("truth", "batched")}


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--repeats", type=positive, default=5)
    parser.add_argument("--only", choices=["layers", "jordan"], help="one of the two tables")
    asked = parser.parse_args()
    rows: list[dict[str, Any]] = []
    if asked.only != "jordan":
        rows += layers(asked.repeats)
    if asked.only != "layers":
        rows += jordan(asked.repeats)
    write(asked.json, rows)


def jordan(repeats: int) -> list[dict[str, Any]]:
    """Loss and gradients of a window of tokens, in three ways from the same weights."""
    rows = []
    title = f"Jordan language model, width {JORDAN_WIDTH}, vocabulary {VOCAB}, {torch.get_num_threads()} threads"
    table = Table(title=title, title_justify="left")
    for heading in (
        "batch x time",
        "own output, BPTT",
        "forced, step by step",
        "forced, at once",
        "speed-up",
        "difference",
    ):
        table.add_column(heading, justify="right")
    for batch, length in JORDAN_CASES:
        models = {
            way: build("jordan", vocab=VOCAB, width=JORDAN_WIDTH, feedback=feedback, kernel=kernel)
            for way, (feedback, kernel) in WAYS.items()
        }
        tokens_BT = torch.randint(VOCAB, (batch, length + 1), generator=torch.Generator().manual_seed(1))
        times: dict[str, list[float]] = {way: [] for way in WAYS}
        losses: dict[str, float] = {}
        for turn in range(repeats + 1):
            for way, model in models.items():
                began = time.perf_counter()
                y_BTD, _ = model.features(tokens_BT[:, :-1])
                loss = model.head.total_nats(y_BTD, tokens_BT[:, 1:]) / (batch * length)
                loss.backward()
                losses[way] = float(loss.detach())
                del y_BTD, _, loss  # and with it its graph, which its own time pays for
                if turn:
                    times[way].append(1e3 * (time.perf_counter() - began))
        medians = {way: statistics.median(times[way]) for way in WAYS}
        difference = abs(losses["step by step"] - losses["at once"])
        speed_up = medians["BPTT"] / medians["at once"]
        size = f"{batch} x {length}"
        table.add_row(size, *(f"{ms:.1f}" for ms in medians.values()), f"{speed_up:.1f}x", f"{difference:.0e}")
        figures = {f"{way} ms": ms for way, ms in medians.items()}
        rows.append({"layer": "jordan", "batch": batch, "time": length, **figures, "difference": difference})
    console().print(table)
    return rows


def layers(repeats: int) -> list[dict[str, Any]]:
    rows = []
    title = f"Width {WIDTH}, {HEADS} heads, {torch.get_num_threads()} threads"
    table = Table(title=title, title_justify="left")
    for heading in ("layer", "batch x time", "one by one", "in chunks", "ratio", "difference"):
        table.add_column(heading, justify="left" if heading == "layer" else "right")
    for kind in SPECS:
        mixer = build_mixer(kind(width=WIDTH, heads=HEADS), generator=torch.Generator().manual_seed(0))
        for batch, length in CASES:
            x_BTI = torch.randn(batch, length, WIDTH, generator=torch.Generator().manual_seed(1))
            times: dict[str, list[float]] = {form: [] for form in FORMS}
            results: dict[str, Tensor] = {}
            for turn in range(repeats + 1):
                for form in FORMS:
                    mixer.kernel = form
                    began = time.perf_counter()
                    y_BTD, _ = mixer(x_BTI)
                    y_BTD.square().mean().backward()
                    results[form] = y_BTD.detach()
                    del y_BTD, _  # and with it its graph, which its own time pays for
                    if turn:
                        times[form].append(1e3 * (time.perf_counter() - began))
            slow, fast = (statistics.median(times[form]) for form in FORMS)
            difference = float((results["naive"] - results["batched"]).abs().max())
            size = f"{batch} x {length}"
            row = (size, f"{slow:.0f}", f"{fast:.0f}", f"{slow / fast:.1f}x", f"{difference:.0e}")
            layer = kind.model_fields["kind"].default
            table.add_row(layer, *row)
            figures = {"naive_ms": slow, "batched_ms": fast, "difference": difference}
            rows.append({"layer": layer, "batch": batch, "time": length, **figures})
    console().print(table)
    return rows


if __name__ == "__main__":
    main()
