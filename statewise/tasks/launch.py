"""From a spec to a trained folder, and on from where it stopped."""

import json
import os
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

import statewise
from statewise.data import Corpus, Tokenizer, open_corpus, token_counts
from statewise.models import build
from statewise.specs import RunSpec, UserError, load_recipe, make_spec
from statewise.specs.toml import dumps
from statewise.tasks.language_model import LanguageModelTask
from statewise.tasks.run import NEEDS, Run, load, read_spec, refuse_other_size
from statewise.training import (
    Display,
    Outcome,
    Parallel,
    RunFolder,
    Signals,
    Stopped,
    count,
    fit,
    make_display,
    parallel,
)
from statewise.training.checkpoint import Payload, read_tensors
from statewise.training.device import allow_amx_if_it_works, pick_device
from statewise.training.folder import Checkpoint, newest_verified, step_folders, weights_sha256

_REHEARSAL = 50  # steps that `deterministic` repeats


class Trained(NamedTuple):
    path: Path
    outcome: Outcome
    resumed_from: int | None
    proof: bool | None  # deterministic: whether a second pass over the first steps gave the same weights

    def load(self) -> Run:
        return load(self.path)


def train(
    recipe: str | RunSpec = "lstm",
    *,
    settings: Mapping[str, Any] | Sequence[str] = (),
    text: str | Path | Sequence[str] | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    display: Display | None = None,
    on_step: Callable[[int], None] | None = None,
) -> Trained:
    """Train a recipe, a model by name, or a spec. `settings` are `{"train.steps": 500}` or `["train.steps=500"]`.

    With `resume`, go on with `out` (default: the run under `runs/` that was saved last).
    """
    signals = Signals()
    with signals:
        quiet = int(os.environ.get("RANK", "0")) > 0
        display = display or make_display(quiet=quiet)
        overrides = _overrides(settings, text)
        if resume:
            folder = Path(out) if out is not None else newest_run()
            spec, checkpoint = _where_it_stopped(folder, overrides, display)
        else:
            table = recipe.model_dump() if isinstance(recipe, RunSpec) else load_recipe(recipe)
            spec = make_spec(table, overrides, source="the spec" if isinstance(recipe, RunSpec) else f"recipe {recipe}")
            folder, checkpoint = fresh_folder(spec, out), None
        spec = _absolute(spec)
        if spec.train.precision == "bfloat16" and spec.train.device in ("auto", "cpu"):
            allow_amx_if_it_works()
        _make_deterministic(spec.train.deterministic)
        with parallel(pick_device(spec.train.device)) as par:
            return _train(spec, folder, checkpoint, par, display, signals, on_step)


def _train(
    spec: RunSpec,
    path: Path,
    checkpoint: Checkpoint | None,
    par: Parallel,
    display: Display,
    signals: Signals,
    on_step: Callable[[int], None] | None,
) -> Trained:
    tokenizer = None
    if checkpoint is not None:
        tokenizer = Tokenizer.load(checkpoint.path / "tokenizer.json")
        refuse_other_size(spec, tokenizer, checkpoint.path)
    spool = path / "stdin.txt"
    if "-" in (*spec.data.text, *spec.data.validation) and par.leads:
        _make_folder(path)  # standard input is kept there
    with par.leader_first():  # the others find what the leader piped in or tokenised
        corpus = open_corpus(spec.data, tokenizer=tokenizer, spool=spool, progress=_reader(display, signals))
    if "-" in spec.data.text:  # what was piped in is kept, so that resuming and evaluating can read it again
        texts = tuple(str(spool) if name == "-" else name for name in spec.data.text)
        spec = spec.model_copy(update={"data": spec.data.model_copy(update={"text": texts})})
    if checkpoint is not None:
        _refuse_other_text(checkpoint, corpus)
    run = RunFolder(path, identity=identity(spec, corpus))
    task = LanguageModelTask(corpus, spec, par=par)
    if par.leads:  # only now: a mistake above leaves no folder behind
        _make_folder(path)
        _write_environment(path, spec, corpus, par)
    model = build(spec.model, vocab=corpus.tokenizer.vocab, seed=spec.seed).to(par.device)
    display.say(_headline(spec, corpus, path, checkpoint))

    if spec.model.learns == "counting":
        outcome = count(model, task, folder=run if par.leads else None, display=display, signals=signals)
        proof = None
        if spec.train.deterministic and par.world == 1:
            second = build(spec.model, vocab=corpus.tokenizer.vocab, seed=spec.seed).to(par.device)
            proof = count(second, task).weights_sha256 == outcome.weights_sha256
            display.say(f"deterministic: counting again gives {'the same' if proof else 'OTHER'} counts")
        return Trained(path, outcome, None, proof)

    rehearsed = min(_REHEARSAL, spec.train.steps)
    at_rehearsed: list[str] = []

    def watch(step: int) -> None:
        if spec.train.deterministic and step == rehearsed:
            at_rehearsed.append(weights_sha256(model))
        if on_step is not None:
            on_step(step)

    outcome = fit(
        model,
        task,
        spec.train,
        seed=spec.seed,
        folder=run,
        resume=checkpoint,
        par=par,
        display=display,
        signals=signals,
        on_step=watch,
    )
    proof = None
    if at_rehearsed and par.world == 1:
        second = build(spec.model, vocab=corpus.tokenizer.vocab, seed=spec.seed).to(par.device)
        again: list[str] = []

        def compare(step: int) -> None:
            if step == rehearsed:
                again.append(weights_sha256(second))

        # Only a plateau lets evaluations act on the weights; otherwise the second pass may leave them out.
        none = {} if spec.train.schedule == "plateau" else {"evaluate_every": spec.train.steps + 1}
        short = spec.train.model_copy(update=none)
        _first_steps(second, task, short, spec.seed, rehearsed, compare)
        proof = again == at_rehearsed
        display.say(f"deterministic: the first {rehearsed} steps again give {'the same' if proof else 'OTHER'} weights")
    return Trained(path, outcome, None if checkpoint is None else checkpoint.step, proof)


class _Enough(Exception):
    pass


def _first_steps(
    model: Any, task: LanguageModelTask, spec: Any, seed: int, steps: int, on_step: Callable[[int], None]
) -> None:
    """Train only the first steps, with the schedule of the whole run."""

    def until(step: int) -> None:
        on_step(step)
        if step == steps:
            raise _Enough

    with suppress(_Enough):
        fit(model, task, spec, seed=seed, on_step=until)


def identity(spec: RunSpec, corpus: Corpus) -> dict[str, Payload]:
    """What must stand beside weights so that they can be used anywhere."""
    counts_V = torch.from_numpy(token_counts(corpus.train.tokens, corpus.tokenizer.vocab))
    return {
        "run.toml": dumps(spec.model_dump(mode="json")),
        "tokenizer.json": corpus.tokenizer.to_json(),
        "unigram.safetensors": {"counts_V": counts_V},
    }


def fresh_folder(spec: RunSpec, out: str | Path | None) -> Path:
    if out is not None:
        path = Path(out)
        if (path / "run.toml").exists() or (path / "checkpoints").exists():
            raise UserError(
                f"{str(path)!r} already holds a run", fix="add --resume to go on with it, or choose another --out"
            )
        if path.is_dir() and any(path.iterdir()):
            raise UserError(f"{str(path)!r} is a folder with other things in it", fix="choose another --out")
        if path.exists() and not path.is_dir():
            raise UserError(f"{str(path)!r} is a file", fix="choose another --out")
        return path
    name = spec.model.kind
    number = 1
    while (path := Path("runs") / (name if number == 1 else f"{name}-{number}")).exists():
        number += 1
    return path


def newest_run() -> Path:
    """The run under `runs/` that was saved last."""
    found = []
    for path in Path("runs").glob("*/"):
        steps = step_folders(path / "checkpoints")
        if steps:
            found.append((steps[0][0].stat().st_mtime, path))
    if not found:
        raise UserError(
            "there is nothing to resume under runs/", fix="name the folder with --out, or train without --resume"
        )
    return max(found)[1]


def _where_it_stopped(path: Path, overrides: Sequence[str], display: Display) -> tuple[RunSpec, Checkpoint]:
    if not path.is_dir():
        raise UserError(f"{str(path)!r} is not a folder, so there is nothing to resume", fix="check --out")
    if (path / "run.toml").is_file() and read_spec(path).model.learns == "counting":
        raise UserError(f"{str(path)!r} was counted in one go: there is nothing to resume", fix="train anew")
    checkpoint, skipped = newest_verified(path, needs=NEEDS)
    for line in skipped:
        display.say(f"skipped a damaged checkpoint, {line}")
    if checkpoint is None:
        raise UserError(f"{str(path)!r} has no checkpoint that can be trusted", fix="train anew, with another --out")
    before = read_spec(checkpoint.path)
    table = before.model_dump(mode="json", exclude_none=True)
    spec = _absolute(make_spec(table, overrides, source=f"{path}/run.toml"))
    kept = ("batch", "window", "truncation", "optimizer")
    if (spec.seed, spec.data, spec.model) != (before.seed, before.data, before.model) or any(
        getattr(spec.train, name) != getattr(before.train, name) for name in kept
    ):
        raise UserError(
            "a resumed run keeps its seed, data, model, batch, window, truncation and optimizer",
            fix="train anew to change them; the rest of train.* may be changed",
        )
    display.say(f"resumed from step {checkpoint.step} of {path}")
    if checkpoint.step >= spec.train.steps:
        display.say(f"all {spec.train.steps} steps are done; to go on, raise them with --set train.steps=N")
    return spec, checkpoint


def _refuse_other_text(checkpoint: Checkpoint, corpus: Corpus) -> None:
    """A file may have changed since the run began: then its tokens are counted differently."""
    before = read_tensors(checkpoint.path / "unigram.safetensors").get("counts_V")
    if before is None or before.tolist() != token_counts(corpus.train.tokens, corpus.tokenizer.vocab).tolist():
        raise UserError(
            f"{corpus.name!r} is not the text that this run began with", fix="put that text back, or train anew"
        )


def _overrides(settings: Mapping[str, Any] | Sequence[str], text: str | Path | Sequence[str] | None) -> list[str]:
    listed = (
        [f"{path}={_toml(value)}" for path, value in settings.items()]
        if isinstance(settings, Mapping)
        else list(settings)
    )
    if text is not None:
        names = [str(text)] if isinstance(text, str | Path) else [str(name) for name in text]
        listed.append(f"data.text={json.dumps(names)}")
    return listed


def _toml(value: Any) -> str:
    return "none" if value is None else dumps({"v": value}).partition("= ")[2].strip()


def _absolute(spec: RunSpec) -> RunSpec:
    """Paths that mean the same from every folder."""

    def fixed(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name if name == "-" else str(Path(name).absolute()) for name in names)

    data = spec.data.model_copy(update={"text": fixed(spec.data.text), "validation": fixed(spec.data.validation)})
    return spec.model_copy(update={"data": data})


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make the folder {str(path)!r}: {error.strerror}", fix="choose another --out") from None


def _make_deterministic(wanted: bool) -> None:
    if wanted:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(wanted)


def _write_environment(path: Path, spec: RunSpec, corpus: Corpus, par: Parallel) -> None:
    facts = {
        "statewise": statewise.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "platform": platform.platform(),
        "device": torch.cuda.get_device_name(par.device) if par.device.type == "cuda" else platform.machine(),
        "threads": torch.get_num_threads(),
        "processes": par.world,
        "corpus": {"name": corpus.name, "sha256": corpus.sha256, "bytes": corpus.train.bytes + corpus.validation.bytes},
        "command": ["statewise", *sys.argv[1:]],
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    (path / "environment.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def _reader(display: Display, signals: Signals) -> Callable[[str, int, int], None]:
    """Say how far the reading of a large corpus is, now and then; leave when a signal asks for it."""
    told = [0]

    def progress(what: str, done: int, total: int) -> None:
        if signals.received:
            raise Stopped(signals.received, 0)
        if total >= 1 << 26 and done * 10 // total > told[0]:
            told[0] = done * 10 // total
            display.say(f"{what}: {done >> 20:,} of {total >> 20:,} MB")
        if done >= total:
            told[0] = 0

    return progress


def _headline(spec: RunSpec, corpus: Corpus, path: Path, checkpoint: Checkpoint | None) -> str:
    counted = spec.model.learns == "counting"
    size = "by counting" if counted else f"{spec.model.num_parameters(corpus.tokenizer.vocab):,} parameters"
    return (
        f"{spec.model.kind}, {size}, on {corpus.name} "
        f"({len(corpus.train.tokens):,} tokens, vocabulary {corpus.tokenizer.vocab}, sha256 {corpus.sha256[:12]}) "
        f"-> {path}"
    )
