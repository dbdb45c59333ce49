"""Memory of building and training on pairs, labels, tags and trees: from a folder of shards, and from the file itself.

    python benchmarks/examples.py --megabytes 200 [--json FILE] [RECIPE ...]

Each is a process of its own, of which the largest resident memory counts; that of the same on 1 % of the file is
subtracted, so what remains is what grows with the examples. A tiny model learns for a few steps; what is held out
is the same for both.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from command_line import console, options, positive, write
from rich.table import Table

MEGABYTE = 10**6
FEW = 100  # times smaller is what is subtracted, and what is held out of both
STEPS = {"train.steps": 20, "train.batch": 8, "train.evaluate_every": 20, "train.evaluate_tokens": 50, "seed": 1}
WIDTHS: dict[str, dict[str, Any]] = {
    "translation": {"model.encoder.width": 8, "model.decoder.width": 8, "decoding.watch": 0},
    **{recipe: {"model.width": 8} for recipe in ("classification", "tagging", "tree")},
}
FIRST = {"classification": "text\tlabel\n"}


class Peak(NamedTuple):
    megabytes: float
    seconds: float


def lines(recipe: str, chance: np.random.Generator) -> Callable[[int], str]:
    """Makes the example of a number: of about 180 words, or a tree of as many."""
    words = [f"w{number}" for number in range(900)]
    texts = [list(chance.choice(words, 180)) for _ in range(100)]

    def made(number: int) -> str:
        text = texts[int(chance.integers(len(texts)))]
        digits = " ".join(str(number))  # no text is there twice, and no word is new
        match recipe:
            case "translation":
                return f"{digits} {' '.join(text[:90])}\t{' '.join(text[90:])}\n"
            case "classification":
                return f"{digits} {' '.join(text)}\t{'abc'[number % 3]}\n"
            case "tagging":
                return "".join(f"{word} {'NVA'[len(word) % 3]}\n" for word in text) + "\n"
            case _:
                return _tree(text, number) + "\n"

    return made


def _tree(words: Sequence[str], number: int) -> str:
    if len(words) == 1:
        return f"({number % 4} {words[0]})"
    half = len(words) // 2
    return f"({number % 5} {_tree(words[:half], number + 1)} {_tree(words[half:], number + 2)})"


def write_examples(path: Path, recipe: str, *, size: int) -> None:
    """A file of about `size` bytes."""
    made = lines(recipe, np.random.default_rng(0))
    with path.open("w", encoding="utf-8") as file:
        written, number = file.write(FIRST.get(recipe, "")), 0
        while written < size:
            written += file.write(made(number))
            number += 1


def peak(verb: str, recipe: str, data: Path, held: Path, out: Path) -> Peak:
    """Of a process of its own."""
    began = time.monotonic()
    words = [sys.executable, __file__, "--measured", verb, recipe, str(data), str(held), str(out)]
    said = subprocess.run(words, capture_output=True, text=True, check=False)
    if said.returncode:
        raise RuntimeError(said.stderr)
    return Peak(float(said.stdout.split()[-1]), time.monotonic() - began)


def measured(verb: str, recipe: str, data: str, held: str, out: str) -> None:
    import torch

    from statewise.specs import as_overrides
    from statewise.tasks import build_examples, train
    from statewise.training.progress import Silent

    torch.set_num_threads(1)
    settings = {**STEPS, **WIDTHS[recipe], **({} if verb == "train" else {"data.validation": [held]})}
    if verb == "build":
        build_examples(recipe, [data], out, settings=as_overrides(settings))
    else:
        train(recipe, data=data, settings=settings, out=out, display=Silent())
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MEGABYTE)


def growth(recipe: str, folder: Path, *, megabytes: float) -> dict[str, Any]:
    """What a file of so many megabytes takes more than 1 % of it, in megabytes, and the seconds of the whole."""
    peaks: dict[str, list[Peak]] = {"build": [], "train": [], "train in memory": []}
    held = folder / f"{recipe}-held.tsv"
    write_examples(held, recipe, size=int(megabytes / FEW * MEGABYTE))
    for name, size in (("few", megabytes / FEW), ("many", megabytes)):
        file, built = folder / f"{recipe}-{name}.tsv", folder / f"{recipe}-{name}"
        write_examples(file, recipe, size=int(size * MEGABYTE))
        peaks["build"].append(peak("build", recipe, file, held, built))
        peaks["train"].append(peak("train", recipe, built, held, folder / f"{recipe}-{name}-run"))
        peaks["train in memory"].append(peak("in memory", recipe, file, held, folder / f"{recipe}-{name}-plain"))
    return {
        "file": file.stat().st_size / MEGABYTE,
        **{verb: many.megabytes - few.megabytes for verb, (few, many) in peaks.items()},
        **{f"{verb}, seconds": many.seconds for verb, (_, many) in peaks.items()},
    }


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("recipes", nargs="*", metavar="RECIPE", help=f"default: {', '.join(WIDTHS)}")
    parser.add_argument("--megabytes", type=positive, default=200, help="size of each file")
    asked = parser.parse_args()
    for recipe in asked.recipes:
        if recipe not in WIDTHS:
            parser.error(f"{recipe!r} is no recipe; valid: {', '.join(WIDTHS)}")
    found: dict[str, dict[str, Any]] = {}
    for recipe in asked.recipes or WIDTHS:
        with tempfile.TemporaryDirectory() as folder:
            found[recipe] = growth(recipe, Path(folder), megabytes=asked.megabytes)
    table = Table("megabytes more", *next(iter(found.values())), title="memory that grows with the examples")
    for recipe, numbers in found.items():
        table.add_row(recipe, *(f"{number:,.0f}" for number in numbers.values()))
    console().print(table)
    write(asked.json, {"megabytes": asked.megabytes, "found": json.loads(json.dumps(found))})


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measured"]:
        measured(*sys.argv[2:])
    else:
        main()
