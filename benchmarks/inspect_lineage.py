"""How far back trained language models reach: by their gradients, by the value of context, by the loss without it.

    python benchmarks/inspect_lineage.py runs/lstm runs/transformer runs/ttt_linear
    python benchmarks/inspect_lineage.py runs/* --text held-out.txt --window 256 --markdown

Every run reads the same text (default: its own held-out part, so train them on the same data), and is reset after the
same number of tokens.

First table: parameters; bits per token; the memory length by the norm of the gradient and by the gain of more context
(the distance at which it falls below a fraction of its maximum; `>`: beyond the tested range); the increase of the loss
after a reset; and the half-life of the effect of one changed token. Second table: bits per token against the number of
tokens read before it. `--markdown` prints both in the format of docs/results.md.
"""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from command_line import console
from rich.table import Table

from statewise.display import make_progress
from statewise.inspection import Finding, apply_lens, open_subject
from statewise.specs import UserError


class Row(NamedTuple):
    name: str
    parameters: int
    surprise: Finding
    gradient: Finding
    intervene: Finding


def inspected(path: Path, *, text: str | None, fresh: int, **wanted: int | None) -> Row:
    progress = make_progress()
    subject = open_subject(path, text=text)
    # All start afresh at the same places; a run that never learned beyond a shorter window keeps that one.
    limit = min(fresh, subject.tokens.window or fresh)
    subject = subject._replace(reading=replace(subject.tokens, window=limit))
    settings: dict[str, Any] = {name: value for name, value in wanted.items() if value is not None}
    return Row(
        path.name,
        sum(p.numel() for p in subject.machine.parameters()),
        apply_lens(subject, "surprise", progress=progress),
        apply_lens(subject, "gradient", progress=progress, **settings),
        apply_lens(subject, "intervene", progress=progress, address="everything", tokens=0, places=32),
    )


def reach(length: float | None, tried: float) -> str:
    return f"> {tried:,.0f}" if length is None else f"{length:,.0f}"


def between(context: dict[str, Any]) -> str:
    """The length, and in brackets what the 95 % interval of the losses leaves open."""
    length, least, most = (
        reach(one, max(context["contexts"])) for one in (context["memory_length"], *context["memory_length_interval"])
    )
    return length if least == most else f"{length} ({least} to {most})"


def half_life(kl: list[float]) -> str:
    found = next((at for at, value in enumerate(kl) if value < kl[0] / 2), None)
    return f"> {len(kl)}" if found is None else str(found)


def memory(rows: list[Row]) -> tuple[list[str], list[list[str]]]:
    heads = ["run", "parameters", "bits a token", "memory by gradient", "by context", "forgetting, nats", "half-life"]
    lines = []
    for row in rows:
        gradient: dict[str, Any] = row.gradient.data
        context, decay = gradient["context"], gradient["decay"]["input"]
        lines.append(
            [
                row.name,
                f"{row.parameters:,}",
                f"{row.surprise.data['bits_per_token']:.3f}",
                reach(decay["memory_length"], max(decay["distance"])),
                between(context),
                f"{row.intervene.data['added']['forget everything']:+.3f}",
                half_life(row.intervene.data["forked"]),
            ]
        )
    return heads, lines


def positions(rows: list[Row]) -> tuple[list[str], list[list[str]]]:
    """Bits against position; a stretch that a run never reaches stays empty."""
    by_run = [{one["low"]: one["mean"] for one in row.surprise.data["by_position"]} for row in rows]
    starts = sorted({low for found in by_run for low in found})
    lines = [
        [
            f"{low:,}" if low == 0 else f"from {low:,}",
            *(f"{found[low]:.3f}" if low in found else "" for found in by_run),
        ]
        for low in starts
    ]
    return ["tokens read before", *(row.name for row in rows)], lines


def show(title: str, heads: list[str], lines: list[list[str]], *, markdown: bool) -> None:
    if markdown:
        print(f"\n{title}\n")
        for cells in (heads, ["---"] * len(heads), *lines):
            print(f"| {' | '.join(cells)} |")
        return
    table = Table(title=title)
    for number, head in enumerate(heads):
        table.add_column(head, justify="right" if number else "left")
    for line in lines:
        table.add_row(*line)
    console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, help="trained folders of language models")
    parser.add_argument("--text", help="a file, or the text itself")
    parser.add_argument("--fresh", type=int, default=256, help="tokens after which every run starts afresh")
    parser.add_argument("--window", type=int, help="tokens that gradients are followed through")
    parser.add_argument("--targets", type=int, help="tokens that the worth of context is measured on")
    parser.add_argument("--markdown", action="store_true", help="tables for docs/results.md")
    wanted = parser.parse_args()
    try:
        rows = [
            inspected(path, text=wanted.text, fresh=wanted.fresh, window=wanted.window, targets=wanted.targets)
            for path in wanted.runs
        ]
    except UserError as error:
        parser.error(str(error))
    show("How far back", *memory(rows), markdown=wanted.markdown)
    show("Bits a token against position", *positions(rows), markdown=wanted.markdown)


if __name__ == "__main__":
    main()
