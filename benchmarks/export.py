"""The ONNX graphs of each model, compared with PyTorch: the largest errors over its variants.

    python benchmarks/export.py [--models lstm gru ...] [--json FILE]
    python benchmarks/export.py --start FOLDER [--json FILE]

Small models, in all variants that `statewise verify` lists. Batches of 1, 3 and 8 rows, lengths up to 300, states that
are not zero, 200 chained steps. Errors are relative to the largest value of a tensor where that is above 1; `float32`
is how far PyTorch in float32 is from float64 over the same sequences, where an error is above the bound.

With `--start`, of an exported language model: the time from the start of a process to its first token, and the CPU time
of the whole process, as medians. The process imports `runtime.py` and loads the folder.
"""

import subprocess
import sys
import time
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from statistics import median

from command_line import console, options, write
from rich.table import Table

from statewise.export import graphs_of, prove, session
from statewise.models import LINEAGE, build_sample

VOCAB = 17
STARTS = 10
FIRST_TOKEN = """
import sys
sys.modules.update(dict.fromkeys(sys.argv[1:]))  # None: as if it were not installed
import runtime
print(next(runtime.load(".").stream("A", tokens=1))[0], flush=True)
"""


def time_starts(folder: Path, json: Path | None) -> None:
    table, rows = Table("with", "first token", "CPU time"), []
    for name, absent in (("onnxruntime", ()), ("NumPy alone", ("onnxruntime", "tokenizers"))):
        wall, cpu = [], []
        for _ in range(STARTS):
            before, begin = getrusage(RUSAGE_CHILDREN), time.perf_counter()
            command = [sys.executable, "-c", FIRST_TOKEN, *absent]
            with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE) as process:
                assert process.stdout is not None
                said = process.stdout.readline()
                wall.append(time.perf_counter() - begin)
            if process.returncode or not said:
                raise SystemExit(f"{str(folder)!r} gave no token; name a language model that `statewise export` wrote")
            after = getrusage(RUSAGE_CHILDREN)
            cpu.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        rows.append({"with": name, "first_token_s": median(wall), "cpu_s": median(cpu)})
        table.add_row(name, f"{median(wall):.2f} s", f"{median(cpu):.2f} s")
    console().print(table)
    write(json, rows, starts=STARTS)


def main() -> None:
    parser = options(__doc__)
    names = [row.name for row in LINEAGE]
    parser.add_argument("--models", nargs="+", default=names, choices=names, metavar="NAME", help="default: all")
    parser.add_argument("--start", type=Path, metavar="FOLDER", help="an exported language model")
    asked = parser.parse_args()
    if asked.start is not None:
        return time_starts(asked.start, asked.json)
    columns = ("model", "variants", "nodes", "step", "chained", "sequence", "float32", "verdict")
    table, rows = Table(*columns), []
    for row in LINEAGE:
        if row.name not in asked.models:
            continue
        proofs, nodes = [], 0
        for spec in (row.spec.small(), *row.variants):
            model = build_sample(spec, vocab=VOCAB).eval()
            step, sequence = graphs_of(model)
            nodes = nodes or len(step.graph.node)
            proofs.append(prove(model, session(step), session(sequence)))
        worst = {
            name: max(getattr(proof, name) or 0.0 for proof in proofs)
            for name in ("step", "chained", "sequence", "rounding")
        }
        passed = all(proof.passed for proof in proofs)
        rows.append({"model": row.name, "variants": len(proofs), "nodes": nodes, **worst, "passed": passed})
        figures = [f"{value:.0e}" if value else "" for value in worst.values()]
        table.add_row(row.name, str(len(proofs)), str(nodes), *figures, "equal" if passed else "BROKEN")
    console().print(table)
    write(asked.json, rows)


if __name__ == "__main__":
    main()
