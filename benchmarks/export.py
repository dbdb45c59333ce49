"""The ONNX graphs of each model, compared with PyTorch: the largest errors over its variants.

    python benchmarks/export.py [--models lstm gru ...] [--json FILE]

Small models, in all variants that `statewise verify` lists. Batches of 1, 3 and 8 rows, lengths up to 300, states that
are not zero, 200 chained steps. Errors are relative to the largest value of a tensor where that is above 1; `float32`
is how far PyTorch in float32 is from float64 over the same sequences, where an error is above the bound.
"""

from command_line import console, options, write
from rich.table import Table

from statewise.export import graphs_of, prove, session
from statewise.models import LINEAGE, build_sample

VOCAB = 17


def main() -> None:
    parser = options(__doc__)
    names = [row.name for row in LINEAGE]
    parser.add_argument("--models", nargs="+", default=names, choices=names, metavar="NAME", help="default: all")
    asked = parser.parse_args()
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
