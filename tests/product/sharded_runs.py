"""Runs of several processes in one process group: `python sharded_runs.py SHARD OUT CASE...`, once for each rank.

Each case is trained uncut, then cut at five random steps as by a kill, and resumed after each. Rank 0 prints one line
of JSON for each: what was compared, and whether it is equal to the last bit. `OUT` keeps the folders.
"""

import json
import random
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from tiny_run import BASE, Cut, at, crash

from statewise.models import LINEAGE
from statewise.specs import load_recipe, make_spec
from statewise.tasks.dispatch import open_job
from statewise.tasks.job import Opening
from statewise.training import Outcome, Parallel, RunFolder, fit, newest_verified, parallel

FAMILIES = [entry.name for entry in LINEAGE if entry.name != "markov"]
# What else a checkpoint of several processes has to bring back.
VARIANTS: dict[str, dict[str, Any]] = {
    "lstm documents": {"data.separator": "log", "model.dropout": 0.3, "train.accumulate": 3, "model.depth": 2},
    "lstm average": {"train.average": 0.9, "train.optimizer": "sgd", "train.momentum": 0.9},
    "transformer muon": {"train.optimizer": "muon", "train.matrix_decay": 0.1, "model.heads": 2, "model.depth": 2},
    "gru asgd": {"train.optimizer": "asgd", "train.trigger": 1, "train.lr": 10.0, "train.evaluate_every": 3},
    "gru scheduled": {"forcing": "scheduled"},
    "elman unbiased": {"train.truncation": "unbiased:3", "data.order": "random"},
    "transformer tied": {"model.tie": True, "model.heads": 2, "model.embedding": 8},
    "lstm offload": {"train.offload": True, "train.optimizer": "muon", "train.average": 0.9},
    "transformer recompute": {"train.recompute": True, "model.heads": 2, "model.dropout": 0.3, "model.depth": 2},
    "gru background": {"train.save_in_background": True, "train.save_every": 1, "train.keep": 3},
}
# Where the model is divided.
DIVIDED = {"mamba2 bfloat16": {"train.precision": "bfloat16-weights", "train.average": 0.9}}
_CUTS = 5
TASKS = ("classification", "tagging", "translation", "tree", "forecasting")
_TASK = {"train.steps": 8, "train.batch": 7, "train.evaluate_every": 4, "train.save_every": 2, "train.log_every": 1}


def settings_of(case: str, text: Path) -> tuple[str, dict[str, Any]]:
    kind = case.split()[0]
    if kind in TASKS:
        return kind, dict(_TASK)
    return kind, {**BASE, "data.text": [str(text)], **(VARIANTS | DIVIDED).get(case, {})}


def run(
    case: str,
    out: Path,
    par: Parallel,
    *,
    text: Path,
    shard: str = "always",
    resume: bool = False,
    on_step: Callable[[int], None] | None = None,
    **more: Any,
) -> Outcome:
    kind, settings = settings_of(case, text)
    settings = {**settings, "train.shard": shard, **more}
    spec = make_spec(
        load_recipe(kind), [f"{name}={json.dumps(value)}" for name, value in settings.items()], source=kind
    )
    checkpoint = None
    if resume:
        par.together(lambda: None)
        checkpoint, skipped = newest_verified(out)
        assert checkpoint is not None
        assert not skipped
    job = open_job(spec, Opening(out, par, None if checkpoint is None else checkpoint.path))
    folder = RunFolder(out, identity={"run.toml": "", **job.identity()})
    par.together(lambda: folder.checkpoints.mkdir(parents=True, exist_ok=True))
    return fit(job.build(), job, spec.train, seed=spec.seed, folder=folder, resume=checkpoint, par=par, on_step=on_step)


def evidence(out: Path, end: Outcome) -> tuple[Any, ...]:
    return (
        end.weights_sha256,
        (out / "metrics.jsonl").read_bytes(),
        (out / "model.safetensors").read_bytes(),
        end.best_step,
        end.evaluation,
    )


def resumed_exactly(case: str, out: Path, par: Parallel, *, text: Path, shard: str) -> dict[str, Any]:
    name = case.replace(" ", "-")
    uncut = run(case, out / f"{name}-uncut", par, text=text, shard=shard)
    steps = sorted(random.Random(f"{case} {par.world} {shard}").sample(range(1, uncut.step), _CUTS))
    cut = out / f"{name}-cut"
    for number, step in enumerate(steps):
        with suppress(Cut):
            run(case, cut, par, text=text, shard=shard, resume=number > 0, on_step=at(step, crash))
    again = run(case, cut, par, text=text, shard=shard, resume=True)
    par.together(lambda: None)
    same = evidence(out / f"{name}-uncut", uncut) == evidence(cut, again)
    parts = len(list((cut / "checkpoints").glob(f"step-{again.step:08d}/optimizer*")))
    return {"case": case, "world": par.world, "shard": shard, "cuts": steps, "parts": parts, "equal": same}


def main() -> None:
    shard, out, *cases = sys.argv[1:]
    torch.set_num_threads(1)
    with parallel(torch.device("cpu")) as par:
        for case in cases:
            told = resumed_exactly(case, Path(out), par, text=Path(out) / "text.txt", shard=shard)
            if par.leads:
                print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
