"""One tiny trained run of every task, and of every way to read a row, on files of its own."""

import math
import random
from pathlib import Path
from typing import Any

import numpy as np

from statewise.disk import locked
from statewise.tasks import Run, load, train
from statewise.tasks.specimen import Specimens
from statewise.training.progress import Silent

STEPS: dict[str, Any] = {
    "model.width": 8,
    "train.steps": 8,
    "train.batch": 4,
    "train.warmup": 2,
    "train.log_every": 2,
    "train.evaluate_every": 8,
    "train.save_every": 8,
    "train.lr": 0.02,
}
ONE_WAY: dict[str, Any] = {"reader.bidirectional": False, "reader.summary": "last"}
WORDS: dict[str, Any] = {"words.width": 8, "words.characters": 4, "words.character_width": 4}
AHEAD: dict[str, Any] = {"forecast.context": 12, "forecast.horizon": 4, "forecast.paths": 8}
WRITING: dict[str, Any] = {"decoding.beam": 1, "decoding.watch": 4, "decoding.draws": 4, "data.header": "no"}
PAIRS: dict[str, Any] = {"model.encoder.width": 8, "model.decoder.width": 8, "model.width": None, **WRITING}
ONE_MACHINE: dict[str, Any] = {"model.kind": "lstm", **WRITING}

# name: (recipe, file, settings)
RUNS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "classifier": ("classification", "rows.tsv", {"data.min_count": 1, "model.embedding": 8}),
    "classifier-one-way": (
        "classification",
        "rows.tsv",
        {"data.min_count": 1, "model.embedding": 8, "model.kind": "lstm", **ONE_WAY},
    ),
    "classifier-transformer": (
        "classification",
        "rows.tsv",
        {"data.min_count": 1, "model.embedding": 8, "model.kind": "transformer", "model.heads": 2},
    ),
    "classifier-pooled": (
        "classification",
        "rows.tsv",
        {"data.min_count": 1, "model.embedding": 8, "reader.summary": "attention"},
    ),
    "grids": ("digits", "grids.npz", {}),
    "classifier-vector": ("vector-to-class", "grids.npz", {}),
    "tagger": ("tagging", "tags.tsv", WORDS),
    "tagger-one-way": ("tagging", "tags.tsv", {**WORDS, "reader.bidirectional": False, "model.kind": "gru"}),
    "tagger-crf": ("tagging", "tags.tsv", {**WORDS, "objective.kind": "crf"}),
    "tree": ("tree", "trees.txt", {}),
    "tree-balanced": ("tree", "trees.txt", {"model.kind": "composition", "model.shape": "balanced"}),
    "tree-words": ("tree", "trees.txt", {"model.kind": "gru", "objective.nodes": "root"}),
    "direct": ("forecasting", "series.csv", {**AHEAD, "objective.kind": "gaussian", "forecast.skip": True}),
    "recursive": ("forecasting", "series.csv", {**AHEAD, "forecast.mode": "recursive", "model.kind": "lstm"}),
    "recursive-transformer": (
        "forecasting",
        "series.csv",
        {**AHEAD, "forecast.mode": "recursive", "model.kind": "transformer", "model.heads": 2},
    ),
    "whole-series": (
        "forecasting",
        "series.csv",
        {
            "forecast.context": "all",
            "forecast.horizon": 4,
            "forecast.mode": "recursive",
            "forecast.paths": 8,
            "train.batch": 1,
        },
    ),
    "translator": ("translation", "pairs.tsv", PAIRS),
    "translator-one-vector": (
        "translation",
        "pairs.tsv",
        {
            **PAIRS,
            "model.bidirectional": False,
            "model.context": "both",
            "model.encoder.embedding": 5,
            "model.output": "deep",
        },
    ),
    "translator-transformer": (
        "translation",
        "pairs.tsv",
        {
            **PAIRS,
            "data.tokenizer": "char",
            "model.encoder.kind": "transformer",
            "model.decoder.kind": "transformer",
            "model.encoder.heads": 2,
            "model.decoder.heads": 2,
        },
    ),
    "translator-class": (
        "class-to-text",
        "classes.tsv",
        {**PAIRS, "model.context": "initial", "model.decoder.kind": "lstm"},
    ),
    "translator-series": ("vector-to-series", "waves.tsv", {**PAIRS, "data.levels": 16}),
    "translator-prompted": ("translation", "pairs.tsv", {**ONE_MACHINE, "termination.kind": "bernoulli"}),
    "translator-prompted-length": ("translation", "pairs.tsv", {**ONE_MACHINE, "termination.kind": "remaining"}),
    "translator-prompted-transformer": (
        "translation",
        "pairs.tsv",
        {**ONE_MACHINE, "model.kind": "transformer", "model.heads": 2},
    ),
}


def write_files(folder: Path) -> None:
    rng = random.Random(0)
    good, bad = ("warm", "clever", "funny"), ("dull", "cold", "long")
    rows = [
        f"a {rng.choice(good if i % 2 else bad)} film {'of the year ' * (i % 3)}and more\t{'good' if i % 2 else 'bad'}"
        for i in range(60)
    ]
    (folder / "rows.tsv").write_text("text\tlabel\n" + "\n".join(rows) + "\n")
    sentences = []
    for _ in range(60):
        words = [("the", "DET"), (rng.choice(("cat", "dog", "owl")), "NOUN"), (rng.choice(("sees", "hears")), "VERB")]
        words += [("a", "DET"), (rng.choice(("hen", "fox")), "NOUN")] * rng.choice([1, 1, 2])
        sentences.append("\n".join(f"{word}\t{tag}" for word, tag in words))
    (folder / "tags.tsv").write_text("\n\n".join(sentences) + "\n")
    pairs = [[rng.choice("abcdef") for _ in range(rng.randint(3, 6))] for _ in range(60)]
    lines = [f"{' '.join(one)}\t{' '.join(one[::-1])}" for one in pairs]
    (folder / "pairs.tsv").write_text("\n".join(lines) + "\n")
    (folder / "trees.txt").write_text("\n".join(_expression(rng, 4) for _ in range(60)) + "\n")
    lines = ["date,load"]
    for i in range(300):
        value = 20 + 5 * math.sin(2 * math.pi * i / 12) + 0.01 * i + rng.gauss(0, 0.3)
        lines.append(f"2024-01-{1 + i // 24:02} {i % 24:02}:00,{value:.4f}")
    (folder / "series.csv").write_text("\n".join(lines) + "\n")
    noise = np.random.default_rng(0)
    x_NHW = noise.normal(0, 0.1, (60, 5, 4))
    for i in range(60):
        x_NHW[(i, noise.integers(5)) if i % 2 else (i, slice(None), noise.integers(4))] += 1
    np.savez(folder / "grids.npz", x=x_NHW, y=np.where(np.arange(60) % 2, "row", "column"))
    classes = [(rng.choice(("ab", "cd")), rng.randint(2, 5)) for _ in range(60)]
    lines = [f"{letters}\t{' '.join(rng.choice(letters) for _ in range(size))}" for letters, size in classes]
    (folder / "classes.tsv").write_text("\n".join(lines) + "\n")
    waves = [(rng.uniform(1, 2), rng.choice((3, 4, 5))) for _ in range(60)]
    lines = [f"{a:.3f} {n}\t{' '.join(f'{a * (-1) ** t:.3f}' for t in range(n))}" for a, n in waves]
    (folder / "waves.tsv").write_text("\n".join(lines) + "\n")


def _expression(rng: random.Random, depth: int) -> str:
    if depth == 0 or rng.random() < 0.2:
        value = rng.randrange(2)
        return f"({value} {value})"
    left, right = _expression(rng, depth - 1), _expression(rng, depth - 1)
    value = min(int(left[1]), int(right[1]))
    return f"({value} {left} {right})"


def make_run(name: str, folder: Path) -> Path:
    """The run of this name, trained once for a folder that has the files, by one of the processes that share it."""
    out, lock = folder / "runs" / name, folder / "locks" / name
    lock.mkdir(parents=True, exist_ok=True)
    with locked(lock, wait=True, patience=240):
        if not (lock / "trained").exists():
            recipe, file, settings = RUNS[name]
            given = {name: value for name, value in {**STEPS, **settings}.items() if value is not None}
            train(recipe, settings=given, data=folder / file, out=out, display=Silent())
            (lock / "trained").touch()
    return out


def opened(tasks: Path, name: str) -> tuple[Run, Specimens]:
    """A run of this name, and its held-out rows as lenses see them."""
    run = load(make_run(name, tasks), device="cpu")
    specimens = run.specimens()
    assert specimens is not None
    return run, specimens
