"""`statewise train`: from a text to a folder."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from statewise.cli.output import print_json
from statewise.cli.run_argument import MixerOption


def train(
    recipe: Annotated[
        str | None,
        typer.Argument(
            metavar="RECIPE|MODEL", help="A recipe (.toml or name), a model's name, or the .py file of your own mixer."
        ),
    ] = None,
    text: Annotated[
        list[str] | None,
        typer.Option("--text", "--data", "-t", help="File or folder to learn from, '-' for standard input."),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", "-s", metavar="PATH=VALUE", help="Override a setting, e.g. train.steps=500."),
    ] = None,
    mixer: MixerOption = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder of the run. Default: runs/MODEL.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with --out, or with the newest run.")] = False,
    deterministic: Annotated[
        bool, typer.Option("--deterministic", help="Refuse nondeterministic operations and prove it by hash.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="The result for machines, on standard output.")] = False,
) -> int:
    """Train a model on a text, in a folder that can be resumed, evaluated and generated from.

    Example: statewise train lstm --text my.txt --set train.steps=2000 --out runs/mine
    Example: statewise train classification --mixer my_mixer.py --set model.options.decay=0.5
    """
    from statewise.specs import UserError
    from statewise.tasks import train as run_training
    from statewise.training import make_display

    if resume and recipe is not None:
        raise UserError(
            f"--resume goes on with a run's own recipe, so {recipe!r} has no meaning here",
            fix="leave it out, and name the run's folder with --out",
        )
    if text and "-" in text and sys.stdin.isatty():
        print("reading standard input; end it with Ctrl-D", file=sys.stderr)
    settings = list(set_ or [])
    if deterministic:
        settings.append("train.deterministic=true")
    trained = run_training(
        recipe or "lstm",
        mixer=mixer,
        settings=settings,
        data=None if text is None else [Path(name) for name in text],
        out=out,
        resume=resume,
        display=make_display(quiet=True) if quiet or _follows() else None,
    )
    if _follows():
        return 0
    outcome = trained.outcome
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
            **{f"validation_{name}": value for name, value in outcome.evaluation.items()},
        }
        print_json(result)
    else:
        best = outcome.evaluation
        if best:
            figures = ", ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in best.items())
            print(f"best at step {outcome.best_step}: {figures}")
        print(f"{outcome.step} steps in {outcome.seconds:.1f} s of training")
        print(f"weights sha256 {outcome.weights_sha256[:16]}…")
        own = f" --mixer {mixer or recipe or 'FILE.py'}" if trained.mixers else ""
        print(f"in {trained.path}; try: statewise {trained.verb} {trained.path}{own}")
    return 1 if trained.proof is False else 0


def _follows() -> bool:
    """Only the first of several processes speaks."""
    import os

    return int(os.environ.get("RANK", "0")) > 0
