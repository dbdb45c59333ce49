"""The demo: three recurrences, the same text, the same number of tokens; one table, and a sample from each.

python examples/three_recurrences.py [--steps N] [--text FILE]
"""

import argparse
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

import statewise as sw
from statewise.tasks import Evaluation, Trained

MODELS = ("elman", "gru", "lstm")
SAMPLE = sw.Sampling(temperature=0.7, seed=1)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--steps", type=int, default=400, help="optimiser steps for each model")
    options.add_argument("--text", help="a file or folder to learn from; default: the embedded corpus")
    options.add_argument("--width", type=int, default=256)
    chosen = options.parse_args()

    began = time.monotonic()
    folder = unused_folder(Path("runs"), "demo")
    results: list[tuple[Trained, sw.Run, Evaluation]] = []
    for name in MODELS:
        trained = sw.train(
            name,
            text=chosen.text,
            out=folder / name,
            settings={
                "model.width": chosen.width,
                "train.steps": chosen.steps,
                "train.evaluate_every": max(1, chosen.steps // 2),
            },
        )
        run = trained.load()
        results.append((trained, run, run.evaluate()))

    console = Console()
    command = ".venv/bin/statewise" if Path(sys.prefix).name == ".venv" else "statewise"
    console.print()
    console.print(table(results))
    for _, run, _ in results:
        console.print(f"\n[bold]{run.spec.model.kind}[/] writes:")
        console.print(Padding(Text(run.generate("The ", tokens=240, sampling=SAMPLE).strip()), (0, 0, 0, 2)))
    console.print(
        f"\nDone in {time.monotonic() - began:.0f} s. The folders are in {folder}; go on with\n"
        f"  {command} generate {folder}/lstm --prompt 'The '     write more\n"
        f"  {command} verify {folder}/lstm                       prove its forms agree\n"
        f"  {command} train lstm --text YOUR.txt                 your own text",
        highlight=False,
    )


def table(results: list[tuple[Trained, sw.Run, Evaluation]]) -> Table:
    anchors = results[0][2]
    shown = Table(
        title="Held-out text, same tokens for all",
        title_justify="left",
        caption=(
            f"Perplexity: 1 is perfect, {anchors.unigram_perplexity:.1f} is letter frequencies alone, "
            f"{anchors.uniform_perplexity:.0f} is knowing nothing. Lower is better."
        ),
        caption_justify="left",
    )
    shown.add_column("model")
    for heading in ("perplexity", "bits per byte", "tokens/s", "state bytes", "parameters"):
        shown.add_column(heading, justify="right")
    for trained, run, result in results:
        shown.add_row(
            f"[bold]{run.spec.model.kind}[/]",
            f"{result.perplexity:.3f}",
            f"{result.bits_per_byte:.3f}",
            f"{trained.outcome.tokens_per_second:,.0f}",
            f"{sw.state_bytes(run.model.init_state(1)):,}",
            f"{sum(p.numel() for p in run.model.parameters()):,}",
        )
    return shown


def unused_folder(parent: Path, name: str) -> Path:
    number = 1
    while (path := parent / (name if number == 1 else f"{name}-{number}")).exists():
        number += 1
    return path


if __name__ == "__main__":
    main()
