"""The scan of minGRU and minLSTM: our parallel implementation against the loop, forward and backward.

    python benchmarks/scan.py

Interleaved, medians, milliseconds; the last column is the largest difference of outputs and gradients.
"""

import statistics
import time

import torch
from command_line import console, options, positive, write
from rich.table import Table
from torch import Tensor

from statewise.kernels.scan import naive, parallel

CASES = ((32, 64, 256), (32, 256, 256), (8, 1024, 256), (1, 2048, 256))
FORMS = {"loop": naive.scan, "parallel": parallel.scan}


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--repeats", type=positive, default=9)
    asked = parser.parse_args()
    rows = []
    table = Table(title=f"h = a·h + b, {torch.get_num_threads()} threads", title_justify="left")
    for heading in ("batch x time x width", "loop", "parallel", "ratio", "difference"):
        table.add_column(heading, justify="right")
    for batch, length, width in CASES:
        a_BTD = torch.rand(batch, length, width, requires_grad=True)
        b_BTD = torch.randn(batch, length, width, requires_grad=True)
        h_BD = torch.randn(batch, width, requires_grad=True)
        times: dict[str, list[float]] = {name: [] for name in FORMS}
        results: dict[str, list[Tensor]] = {}
        for turn in range(asked.repeats + 1):
            for name, run in FORMS.items():
                began = time.perf_counter()
                y_BTD, after_BD = run(a_BTD, b_BTD, h_BD, None)
                gradients = torch.autograd.grad(y_BTD.sum() + after_BD.sum(), [a_BTD, b_BTD, h_BD])
                results[name] = [y_BTD.detach(), *gradients]
                del y_BTD, after_BD  # and with it its graph, which its own time pays for
                if turn:
                    times[name].append(1e3 * (time.perf_counter() - began))
        loop, ours = (statistics.median(times[name]) for name in FORMS)
        difference = max(float((p - q).abs().max()) for p, q in zip(results["loop"], results["parallel"], strict=True))
        size = f"{batch} x {length} x {width}"
        rows.append({"batch x time x width": size, "loop_ms": loop, "parallel_ms": ours, "difference": difference})
        table.add_row(size, f"{loop:.1f}", f"{ours:.1f}", f"{loop / ours:.2f}x", f"{difference:.0e}")
    console().print(table)
    write(asked.json, rows)


if __name__ == "__main__":
    main()
