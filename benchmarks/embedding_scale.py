"""Initial size of token vectors: recipes of every task, trained at several standard deviations.

    python benchmarks/embedding_scale.py FOLDER [--scales default 0.1 0.3 1] [--seeds 3] [--jobs 1] [--device cpu]
           [--only NAME …] [--set model.width=96 …]

FOLDER holds a folder for each data set: `mr`, `subj`, `trec`, `sst2`, `atis` (train.tsv and test.tsv with columns text
and label), `multi30k` (train.de, train.en, val.de, val.en), `ewt` (train.conllu.gz, dev.conllu.gz), `sst` (train.txt,
dev.txt), `shakespeare` and `wikitext` (train.txt). Missing sets are skipped; `docstrings` is embedded. A cell is
the mean over seeds and their standard deviation; `default` is the default rule.
"""

import statistics
import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import torch
from command_line import console, options, positive, write
from rich.table import Table


class Set(NamedTuple):
    name: str
    recipe: str
    settings: dict[str, Any]
    metric: str
    files: tuple[tuple[str, str], ...] = ()
    test: str | None = None  # what is measured, where it is not the held-out part
    parts: tuple[str, ...] = ("model",)  # settings under which an embedding stands


_CLASSES = [
    Set(name, "classification", {}, "accuracy", (("data.train", "train.tsv"),), test="test.tsv")
    for name in ("mr", "subj", "trec", "sst2", "atis")
]
SETS = [
    *_CLASSES,
    Set("docstrings", "classification", {}, "accuracy"),
    Set(
        "ewt",
        "tagging",
        {},
        "accuracy",
        (
            ("data.train", "train.conllu.gz"),
            ("data.validation", "dev.conllu.gz"),
        ),
    ),
    Set(
        "sst",
        "sst-chain",
        {"train.steps": 340},
        "root_accuracy",
        (
            ("data.train", "train.txt"),
            ("data.validation", "dev.txt"),
        ),
    ),
    Set(
        "multi30k",
        "multi30k-bahdanau",
        {"train.steps": 600, "train.evaluate_every": 600},
        "bleu",
        (
            ("data.train", "train.de"),
            ("data.target", "train.en"),
            ("data.validation", "val.de"),
            ("data.validation_target", "val.en"),
        ),
        parts=("model.encoder", "model.decoder"),
    ),
    Set("shakespeare", "lstm", {"train.steps": 600}, "bits_per_byte", (("data.text", "train.txt"),)),
    Set("shakespeare", "transformer", {"train.steps": 600}, "bits_per_byte", (("data.text", "train.txt"),)),
    Set(
        "wikitext",
        "lstm",
        {"train.steps": 600, "data.tokenizer": "word", "data.vocab": 10_000},
        "bits_per_byte",
        (("data.text", "train.txt"),),
    ),
]


class Trial(NamedTuple):
    entry: Set
    scale: str
    seed: int


def measure(trial: Trial, folder: Path, device: str) -> float:
    """Train the recipe as it is, with token vectors of this size, and measure it."""
    import statewise as sw

    torch.set_num_threads(1)
    entry = trial.entry
    settings = {name: str(folder / entry.name / file) for name, file in entry.files} | entry.settings
    if trial.scale != "default":
        settings |= {f"{part}.embedding_scale": float(trial.scale) for part in entry.parts}
    with tempfile.TemporaryDirectory() as out:
        trained = sw.train(entry.recipe, settings=settings, seed=trial.seed, device=device, out=Path(out) / "run")
        test = folder / entry.name / entry.test if entry.test else None
        return float(getattr(trained.load().evaluate(test), entry.metric))


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--scales", nargs="+", default=["default", "0.1", "0.3", "1"])
    parser.add_argument("--seeds", type=positive, default=3)
    parser.add_argument("--jobs", type=positive, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", nargs="+", help="names of data sets")
    parser.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE", help="settings of every recipe")
    asked = parser.parse_args()
    also = dict(given.split("=", 1) for given in asked.set)
    chosen = [
        entry._replace(settings=entry.settings | also)
        for entry in SETS
        if (not entry.files or (asked.folder / entry.name).is_dir()) and (not asked.only or entry.name in asked.only)
    ]
    trials = [Trial(entry, scale, seed) for entry in chosen for scale in asked.scales for seed in range(asked.seeds)]
    with ProcessPoolExecutor(asked.jobs, mp_context=get_context("spawn")) as pool:
        measured = dict(
            zip(
                [(entry.name, entry.recipe, scale, seed) for entry, scale, seed in trials],
                pool.map(measure, trials, [asked.folder] * len(trials), [asked.device] * len(trials)),
            )
        )
    table = Table(title="Standard deviation of token vectors at the start")
    for heading in ("data", "recipe", "metric", *asked.scales):
        table.add_column(heading, justify="right" if heading in asked.scales else "left")
    for entry in chosen:
        cells = []
        for scale in asked.scales:
            figures = [measured[entry.name, entry.recipe, scale, seed] for seed in range(asked.seeds)]
            spread = f" ± {statistics.stdev(figures):.4f}" if len(figures) > 1 else ""
            cells.append(f"{statistics.mean(figures):.4f}{spread}")
        table.add_row(entry.name, entry.recipe, entry.metric, *cells)
    console().print(table)
    write(
        asked.json,
        [
            {"data": name, "recipe": recipe, "scale": scale, "seed": seed, "figure": figure}
            for (name, recipe, scale, seed), figure in measured.items()
        ],
    )


if __name__ == "__main__":
    main()
