"""`statewise train`: from data to the folder of a run."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from statewise.cli.option import Device, Json, MixerOption, Quiet, Text, joined, option
from statewise.cli.output import print_json, print_report, tell


def train(
    recipe: Annotated[
        str | None,
        typer.Argument(
            metavar="RECIPE|MODEL", help="A recipe (.toml or name), a model's name, or the .py file of your own mixer."
        ),
    ] = None,
    data: Annotated[
        list[str] | None, option("--data -d FILE", "File or folder to train on, '-' for standard input.")
    ] = None,
    text: Text = None,
    steps: Annotated[int | None, option("--steps N", "Optimiser steps.")] = None,
    lr: Annotated[float | None, option("--lr RATE", "Learning rate.")] = None,
    batch: Annotated[int | None, option("--batch N", "Rows of a batch.")] = None,
    seed: Annotated[int | None, option("--seed N", "Seed of all random numbers.")] = None,
    device: Device = None,
    set_: Annotated[
        list[str] | None, option("--set -s PATH=VALUE", "Change any setting, e.g. model.width=512; see `settings`.")
    ] = None,
    mixer: MixerOption = None,
    test: Annotated[
        list[str] | None, option("--test FILE", "Evaluate on this file in the end. Can be repeated.")
    ] = None,
    out: Annotated[Path | None, option("--out -o DIR", "Folder of the run. Default: runs/MODEL.")] = None,
    resume: Annotated[
        bool,
        option(
            "--resume",
            "Continue --out, or the newest run: from its newest checkpoint, "
            "or with --resume best or --resume N from its best or that of step N.",
        ),
    ] = False,
    log: Annotated[
        list[str] | None, option("--log NAME", "Report to wandb, mlflow or trackio too. Can be repeated.")
    ] = None,
    plan: Annotated[
        bool, option("--plan", "Only say how much memory and time it takes, by its first steps. Nothing is written.")
    ] = False,
    deterministic: Annotated[
        bool, option("--deterministic", "Refuse nondeterministic operations and prove it by hash.")
    ] = False,
    quiet: Quiet = False,
    json_: Json = False,
) -> int:
    """Train a model of any of the six tasks; the run's folder can be resumed, evaluated and generated from.

    The task is the recipe's: language modelling, classification, tagging, translation, trees or forecasting.

    Example: statewise train lstm --data my.txt --steps 2000 --out runs/mine
    Example: statewise train classification --data reviews.csv --set data.text=review --test other.csv
    Example: statewise train transformer --data my.txt --batch 256 --plan
    Example: statewise train classification --mixer my_mixer.py --set model.options.decay=0.5
    """
    from statewise.specs import UserError, with_plain
    from statewise.tasks import train as run_training
    from statewise.training import make_display

    which: bool | Literal["best"] | int = resume
    if resume and recipe is not None:
        if recipe != "best" and not (recipe.isascii() and recipe.isdigit()):
            raise UserError(
                f"--resume continues a run with its own recipe, but {recipe!r} was named too",
                fix="leave it out, or name best or the number of a step; --out names the run's folder",
            )
        which, recipe = "best" if recipe == "best" else int(recipe), None
    data = joined(data, text)
    if data and "-" in data and sys.stdin.isatty():
        tell("reading standard input; end it with Ctrl-D", error=True)
    settings = list(set_ or [])
    if deterministic:
        settings.append("train.deterministic=true")
    if log:
        settings.append(f"train.log={json.dumps(log)}")
    for name in test or ():
        if ":" not in name and not Path(name).exists():  # hub:NAME and file.npz:x:y are no paths
            raise UserError(f"--test {name}: there is no such file", fix="check the name")
    if plan:
        if resume or out is not None or test:
            raise UserError("--plan writes nothing", fix="leave --resume, --out and --test out")
        plain = {"steps": steps, "lr": lr, "batch": batch, "seed": seed, "device": device}
        return _plan(recipe or "lstm", mixer, with_plain(settings, plain), data, json_=json_)
    silent = quiet or _follows()
    trained = run_training(
        recipe or "lstm",
        mixer=mixer,
        settings=settings,
        data=None if data is None else [Path(name) for name in data],
        steps=steps,
        lr=lr,
        batch=batch,
        seed=seed,
        device=device,
        out=out,
        resume=which,
        display=make_display(quiet=True) if silent else None,
    )
    if _follows():
        return 0
    outcome = trained.outcome
    if silent and trained.warning:
        tell(f"warning: {trained.warning}", error=True)
    tested = trained.load().evaluate([Path(name) for name in test]) if test else None
    if json_:
        result = {
            "run": str(trained.path),
            "step": outcome.step,
            "best_step": outcome.best_step,
            "resumed_from": trained.resumed_from,
            "weights_sha256": outcome.weights_sha256,
            "tokens_per_second": outcome.tokens_per_second,
            "seconds": outcome.seconds,
            "deterministic": trained.proof,
            "warning": trained.warning or None,
            **{f"validation_{name}": value for name, value in outcome.evaluation.items()},
            **({} if tested is None else {"test": tested._asdict()}),
        }
        print_json(result)
    else:
        best = outcome.evaluation
        if best:
            metrics = ", ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in best.items())
            tell(f"best at step {outcome.best_step}: {metrics}")
        tell(f"{outcome.step} steps in {outcome.seconds:.1f} s of training")
        tell(f"weights sha256 {outcome.weights_sha256[:16]}…")
        own = f" --mixer {mixer or recipe or 'FILE.py'}" if trained.mixers else ""
        if tested is not None:
            title = f"{trained.path} on {', '.join(test or ())}"
            print_report(tested.report(trained.path.name), title=title, first="predictor")
        tell(f"in {trained.path}; try: statewise {trained.verb} {trained.path}{own}")
    return 1 if trained.proof is False else 0


def _plan(recipe: str, mixer: str | None, settings: Sequence[str], data: Sequence[str] | None, *, json_: bool) -> int:
    """Exit code 1 where it does not fit."""
    from statewise.display import duration, size
    from statewise.tasks import plan
    from statewise.training import make_display

    files = None if data is None else [Path(name) for name in data]
    made = plan(recipe, mixer=mixer, settings=settings, data=files, display=make_display(quiet=json_))
    if json_:
        print_json(made._asdict())
        return 0 if made.step_seconds is not None else 1
    here = "" if made.memory is None else f", {size(made.memory)} are here"
    tell(f"{made.steps:,} steps read {made.tokens:,} tokens")
    tell(f"memory: {size(made.held)} from step to step, {size(made.peak)} at the peak of a step{here}")
    if made.step_seconds is None:
        tell(f"that does not fit: {made.fit:,} of {made.rows:,} rows do", error=True)
        parts = -(-made.rows // max(1, made.fit))
        fix = f"--set train.accumulate={parts}" if made.fit else "a smaller model, or train.window"
        tell(f"Try: {fix}, or --set train.recompute=true", error=True)
        return 1
    total = duration(made.steps * made.step_seconds)
    tell(f"time: {duration(made.step_seconds)} a step, {total} for all, without evaluations")
    return 0


def _follows() -> bool:
    """Whether this is not the first of several processes, which alone prints."""
    import os

    return int(os.environ.get("RANK", "0")) > 0
