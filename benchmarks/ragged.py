"""Rows of different length on a CPU: our ragged batches against PyTorch's packed sequences.

    python benchmarks/ragged.py [--width 256] [--inputs 64] [--repeats 9]

Interleaved, medians of forward + backward, milliseconds; the last column is the largest difference of the outputs.
"""

import statistics
import time
from collections.abc import Callable

import torch
from command_line import console, options, positive, write
from rich.table import Table
from torch import Tensor

from statewise.kernels import recurrent

CASES = (("a few ends", 33, 64, 2), ("some ends", 40, 64, 8), ("all ragged", 64, 64, 64), ("long, ragged", 64, 200, 64))
OPS = {"lstm": (torch.lstm, 4, 2), "gru": (torch.gru, 3, 1), "elman": (torch.rnn_tanh, 1, 1)}


def main() -> None:
    parser = options(__doc__)
    for name, default in (("width", 256), ("inputs", 64), ("repeats", 9)):
        parser.add_argument(f"--{name}", type=positive, default=default)
    asked = parser.parse_args()
    width, input_width = asked.width, asked.inputs
    rows = []
    table = Table(title=f"Ragged rows, width {width}, {torch.get_num_threads()} threads", title_justify="left")
    for heading in ("op", "rows", "batch x time", "pieces", "packed", "ratio", "difference"):
        table.add_column(heading, justify="right" if heading not in ("op", "rows") else "left")
    for name, (op, gates, parts) in OPS.items():
        shapes = [(gates * width, input_width), (gates * width, width), (gates * width,), (gates * width,)]
        weights = [(0.05 * torch.randn(*shape)).requires_grad_() for shape in shapes]
        for label, batch, length, ragged in CASES:
            x_BTI = torch.randn(batch, length, input_width, requires_grad=True)
            state = tuple(torch.zeros(batch, width) for _ in range(parts))
            lengths_B = torch.full((batch,), length)
            lengths_B[:ragged] = torch.randint(1, length, (ragged,))
            runs: dict[str, Callable[..., recurrent.OpResult]] = {
                "pieces": recurrent.run_torch_op,
                "packed": recurrent._packed,
            }
            times: dict[str, list[float]] = {key: [] for key in runs}
            results: dict[str, Tensor] = {}
            for turn in range(asked.repeats + 1):
                for key, run in runs.items():
                    began = time.perf_counter()
                    y_BTD, after = run(op, x_BTI, state, weights, lengths_B)
                    (y_BTD.sum() + sum(part.sum() for part in after)).backward()
                    results[key] = y_BTD.detach()
                    del y_BTD, after  # and with it its graph, which its own time pays for
                    if turn:
                        times[key].append(1e3 * (time.perf_counter() - began))
            ours, theirs = (statistics.median(times[key]) for key in ("pieces", "packed"))
            difference = float((results["pieces"] - results["packed"]).abs().max())
            row = (f"{batch} x {length}", f"{ours:.1f}", f"{theirs:.1f}", f"{theirs / ours:.2f}x", f"{difference:.0e}")
            table.add_row(name, label, *row)
            figures = {"pieces_ms": ours, "packed_ms": theirs, "difference": difference}
            rows.append({"op": name, "rows": label, "batch": batch, "time": length, **figures})
    console().print(table)
    write(asked.json, rows, width=width)


if __name__ == "__main__":
    main()
