"""Layers that read a sequence in chunks, against the same layers step by step: forward and backward.

    python benchmarks/chunked.py

Interleaved, medians, milliseconds; the last column is the largest difference of the outputs.
"""

import statistics
import time

import torch
from command_line import console, options, positive, write
from rich.table import Table
from torch import Tensor

from statewise.models import build_mixer
from statewise.specs import GatedDeltaSpec, LinearAttentionSpec, Mamba2Spec, TTTLinearSpec, TTTMLPSpec

WIDTH, HEADS = 128, 4
SPECS = (LinearAttentionSpec, GatedDeltaSpec, Mamba2Spec, TTTLinearSpec, TTTMLPSpec)
CASES = ((16, 64), (4, 256))
FORMS = ("naive", "batched")


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--repeats", type=positive, default=5)
    asked = parser.parse_args()
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
            for turn in range(asked.repeats + 1):
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
    write(asked.json, rows)


if __name__ == "__main__":
    main()
