"""What a session costs: bytes of the state of every model of the lineage, against the tokens that it has read.

    python benchmarks/session_cost.py                                 # a table
    python benchmarks/session_cost.py --svg docs/session-cost.svg     # and the picture of docs/serving.md

Every model has its default size and a vocabulary of 256. States are measured without weights.
"""

from functools import partial
from pathlib import Path

from command_line import console, options, positive, write
from rich.table import Table

from statewise.display import size
from statewise.figures import Axis, Figure, Series, svg_file
from statewise.models import LINEAGE, build, context_bytes, measured

TOKENS = [1, 16, 256, 1024, 4096, 16384, 65536]
VOCAB = 256


def figure(found: dict[str, list[int]], tokens: list[int]) -> Figure:
    """Models whose states have the same size are one line."""
    lines: dict[tuple[int, ...], list[str]] = {}
    for name, sizes in found.items():
        lines.setdefault(tuple(sizes), []).append(name)
    ordered = sorted(lines.items(), key=lambda line: -line[0][-1])
    series = tuple(Series(_label(names), tuple(tokens), sizes) for sizes, names in ordered)
    grow = [name for name, sizes in found.items() if sizes[-1] > sizes[0]]
    return Figure(
        "session-cost",
        "Memory of a conversation",
        "line",
        Axis("tokens read", "log", "whole", base=2),
        Axis("bytes of a state", "log", "bytes", base=2),
        series,
        "One line for each size of a state; both axes are logarithmic.",
        f"{len(found) - len(grow)} of {len(found)} models keep one size; {', '.join(grow)} grow with every token.",
    )


def _label(names: list[str]) -> str:
    return ", ".join(names) if len(names) < 3 else f"{names[0]} and {len(names) - 1} others"


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--svg", type=Path, help="a file for the picture")
    parser.add_argument("--tokens", type=positive, nargs="+", default=TOKENS)
    asked = parser.parse_args()
    found: dict[str, list[int]] = {}
    table = Table(title="Bytes of a state after so many tokens", title_justify="left")
    for column in ("model", *(f"{count:,}" for count in asked.tokens)):
        table.add_column(column, justify="left" if column == "model" else "right")
    for row in LINEAGE:
        made = partial(build, row.spec, vocab=VOCAB)
        found[row.name] = [measured(made, partial(context_bytes, tokens=count)) for count in asked.tokens]
        table.add_row(row.name, *map(size, found[row.name]))
    console().print(table)
    drawn = figure(found, asked.tokens)
    print(drawn.finding)
    if asked.svg is not None:
        asked.svg.write_text(svg_file(drawn), encoding="utf-8")
    rows = [
        {"model": name, "tokens": count, "bytes": held}
        for name in found
        for count, held in zip(asked.tokens, found[name])
    ]
    write(asked.json, rows)


if __name__ == "__main__":
    main()
