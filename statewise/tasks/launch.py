"""From a spec to a trained folder, and on from where it stopped."""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from statewise.core import Mixer
from statewise.data import Data, MemoryFile, file_names, memory_file, stored_in
from statewise.disk import locked, make_folder
from statewise.models import AnyMixer, CountingMachine, classes_of, names_a_file, own_mixers
from statewise.specs import (
    AnyRunSpec,
    OwnMixer,
    RunSpec,
    TrainSpec,
    UserError,
    as_overrides,
    dumps,
    load_recipe,
    make_spec,
    mixers_of,
    option,
    with_plain,
)
from statewise.tasks.dispatch import Trained, open_job
from statewise.tasks.environment import compare_threads, data_sha256, refuse_other_data, restarted, write_environment
from statewise.tasks.fine_tuning import fine_tuning, first_model
from statewise.tasks.folder import NEEDS, is_run, read_spec
from statewise.tasks.job import Job, Opening
from statewise.tasks.language_model import LanguageModelJob
from statewise.training import (
    Checkpoint,
    Display,
    Outcome,
    Parallel,
    Progress,
    RunFolder,
    Signals,
    Stopped,
    allow_amx_if_it_works,
    checkpoint_of,
    count,
    fit,
    judge_of,
    make_display,
    never_trained,
    newest_verified,
    num_parts,
    parallel,
    pick_device,
    refuse_missing,
    refuse_what_does_not_fit,
    refuse_what_is_never_captured,
    start_over,
    step_folders,
    warm_up_gpu,
    weights_sha256,
)

_ANOTHER = f"choose another folder: {option('out', 'DIR')}"
_REHEARSAL = 50  # steps that `deterministic` repeats


def train(
    recipe: "str | AnyRunSpec | type[Mixer[Any]]" = "lstm",
    *,
    mixer: AnyMixer | Sequence[AnyMixer] | None = None,
    settings: Mapping[str, Any] | Sequence[str] = (),
    steps: int | None = None,
    lr: float | None = None,
    batch: int | None = None,
    seed: int | None = None,
    device: str | None = None,
    data: Data | None = None,
    out: str | Path | None = None,
    resume: bool | Literal["best"] | int = False,
    display: Display | None = None,
    on_step: Callable[[int], None] | None = None,
) -> Trained:
    """Train a recipe, a model by name, or a spec. Returns where the run is and how training went (`Trained`).

    `settings` are `{"model.width": 64}` or `["model.width=64"]`; `steps`, `lr`, `batch`, `seed` and `device` stand for
    `train.steps` and so on. `data` is what to learn from: files, or what you hold in memory, which is then kept in the
    run's folder. `out` is the folder to write (default: a new one under `runs/`).
    `mixer` is a class of your own, or the file it is in: it takes the place of the recipe's model, and
    `{"model.options.decay": 0.5}` sets what its constructor takes. `train(EMA)` is a language model of it.
    With `resume`, continue `out` (default: the run under `runs/` that was saved last): True from its newest checkpoint,
    "best" from the one of the best validation, a number from that of this step.
    `on_step` is called with the number of every step.

    >>> trained = sw.train("gru", data="text.txt", steps=20, settings={"model.width": 16})
    >>> trained.path
    PosixPath('runs/gru')
    """
    signals = Signals()
    with signals, ExitStack() as held:
        leads = int(os.environ.get("RANK", "0")) == 0  # and alone writes
        display = display or make_display(quiet=not leads)
        plain = {"steps": steps, "lr": lr, "batch": batch, "seed": seed, "device": device}
        overrides = with_plain(as_overrides(settings), plain)
        paths = None if data is None else file_names(data)
        in_memory = data is not None and paths is None
        made: MemoryFile | None = None
        number = 1
        if resume is False and restarted(out):
            resume = newest_verified(Path(str(out)), needs=NEEDS)[0] is not None
        if resume is not False:
            folder = Path(out) if out is not None else newest_run()
            if in_memory:
                raise UserError("a resumed run reads the data that it began with", fix="leave data out")
            if leads and folder.is_dir():
                held.enter_context(locked(folder))
            spec, checkpoint = _where_it_stopped(folder, resume, overrides, paths, display, own_mixers(mixer))
        else:
            table, source, mixers = asked_for(recipe, mixer)
            spec = make_spec(table, overrides, data=[""] if in_memory else paths, source=source, mixers=mixers)
            folder, checkpoint = _numbered(spec.name, number) if out is None else Path(out), None
            while leads and not _claimed(folder, held, named=out is not None):
                number += 1
                folder = _numbered(spec.name, number)
        spec = spec.absolute()
        if spec.train.precision == "bfloat16" and spec.train.device in ("auto", "cpu"):
            allow_amx_if_it_works()
        _make_deterministic(spec.train.deterministic)
        with parallel(pick_device(spec.train.device)) as par:
            warm_up_gpu(par.device)
            if out is None and checkpoint is None:
                folder = _numbered(spec.name, int(par.from_leader([number])[0]))
            if in_memory:
                made = memory_file(spec, data, training=True)
                spec = made.run_spec(spec, folder)
                display.say(made.summary(folder))
            with stored_in(made, folder, leads=par.leads):
                return _train(spec, folder, checkpoint, par, display, signals, on_step)


def asked_for(
    recipe: str | AnyRunSpec | type[Mixer[Any]], mixer: AnyMixer | Sequence[AnyMixer] | None
) -> tuple[Mapping[str, Any], str, Sequence[OwnMixer]]:
    """The table that is to be trained, what it is called in messages, and the user's own classes it may need."""
    if isinstance(recipe, RunSpec):
        return recipe.model_dump(), "the spec", mixers_of(recipe) if mixer is None else own_mixers(mixer)
    if isinstance(recipe, type) or names_a_file(recipe):
        if mixer is not None:
            raise UserError(f"{recipe} and mixer both give a mixer class", fix="leave one of them out")
        return {}, recipe.__name__ if isinstance(recipe, type) else recipe, own_mixers(recipe)
    mixers = own_mixers(mixer)
    return _table(recipe, mixers), f"recipe {recipe}", mixers


def _train(
    spec: AnyRunSpec,
    path: Path,
    checkpoint: Checkpoint | None,
    par: Parallel,
    display: Display,
    signals: Signals,
    on_step: Callable[[int], None] | None,
) -> Trained:
    kept = None if checkpoint is None else checkpoint.path
    with par.leader_first():  # the others find what the leader piped in or tokenised
        job = open_job(spec, Opening(path, par, kept, _reader(display, signals)))
    spec = job.spec
    if checkpoint is not None:
        refuse_other_data(path, job.facts())
        compare_threads(checkpoint, spec, par.device, display)
    refuse_missing(spec.train.log)
    judge_of(job, spec.train)  # refuses a figure that the task does not have
    refuse_what_is_never_captured(spec.train, par)
    parts = num_parts(job.num_parameters(), spec.train, par) if spec.learns == "gradient" else 1
    if spec.learns == "gradient":
        refuse_what_does_not_fit(job.num_parameters(), spec.train, par.device, parts=parts)
    recipe = dumps(spec.relative_to(path).model_dump(mode="json"))
    run = RunFolder(path, identity={"run.toml": recipe, **job.identity()})
    if par.leads:
        make_folder(run.checkpoints if spec.learns == "gradient" else path, inside=path)
        write_environment(path, job.facts(), par)
    model = job.build() if checkpoint is not None else first_model(job)
    model = model.to(par.device) if parts == 1 else model  # a layer is moved when it is divided
    display.say(f"{job.headline()} -> {path}")

    if isinstance(job, LanguageModelJob) and isinstance(model, CountingMachine):
        outcome = count(model, job, folder=run if par.leads else None, display=display, signals=signals)
        proof = None
        if spec.train.deterministic and par.world == 1:
            proof = count(job.build().to(par.device), job).weights_sha256 == outcome.weights_sha256
            display.say(f"deterministic: counting again gives {'the same' if proof else 'OTHER'} counts")
        return Trained(path, outcome, None, proof, spec.verb, _warn(spec, job, outcome, display))

    rehearsed = min(_REHEARSAL, spec.train.steps)
    at_rehearsed: list[str] = []

    def watch(step: int) -> None:
        if step == rehearsed:
            at_rehearsed.append(weights_sha256(model))
        if on_step is not None:
            on_step(step)

    outcome = fit(
        model,
        job,
        spec.train,
        seed=spec.seed,
        folder=run,
        resume=checkpoint,
        par=par,
        display=display,
        signals=signals,
        on_step=watch if spec.train.deterministic and par.world == 1 else on_step,
    )
    proof = None
    if at_rehearsed:
        second = first_model(job).to(par.device)
        again: list[str] = []

        def compare(step: int) -> None:
            if step == rehearsed:
                again.append(weights_sha256(second))

        # Only a plateau lets evaluations act on the weights; otherwise the second pass may leave them out.
        none = {} if spec.train.schedule == "plateau" else {"evaluate_every": spec.train.steps + 1}
        short = spec.train.model_copy(update=none)
        _first_steps(second, job, short, spec.seed, rehearsed, compare)
        proof = again == at_rehearsed
        display.say(f"deterministic: the first {rehearsed} steps again give {'the same' if proof else 'OTHER'} weights")
    resumed_from = None if checkpoint is None else checkpoint.step
    warning = _warn(spec, job, outcome, display)
    return Trained(path, outcome, resumed_from, proof, spec.verb, warning, classes_of(mixers_of(spec)))


def _warn(spec: AnyRunSpec, job: Job, outcome: Outcome, display: Display) -> str:
    """Say it where a model is of no use."""
    if warning := job.warning(spec.name, outcome.evaluation):
        display.say(f"warning: {warning}")
    return warning


class _Enough(Exception):
    pass


def _first_steps(
    model: nn.Module, job: Job, spec: TrainSpec, seed: int, steps: int, on_step: Callable[[int], None]
) -> None:
    """Train only the first steps, with the schedule of the whole run."""

    def until(step: int) -> None:
        on_step(step)
        if step == steps:
            raise _Enough

    with suppress(_Enough):
        fit(model, job, spec, seed=seed, on_step=until)


def _numbered(name: str, number: int) -> Path:
    return Path("runs") / (name if number == 1 else f"{name}-{number}")


def _claimed(path: Path, held: ExitStack, *, named: bool) -> bool:
    """Make, lock and clear the folder of a new run. False: it is another's, and was not asked for by name.

    Whatever is made here goes away again if the run leaves nothing in it.
    """
    made = [folder for folder in (path, *path.parents) if not folder.exists()]
    if named:
        refuse_used(path)
        make_folder(path)
    else:
        make_folder(path.parent)
        try:
            path.mkdir()
        except FileExistsError:
            return False
    held.callback(_remove_empty, made)
    held.enter_context(locked(path))
    refuse_used(path)  # now nobody else writes to it
    start_over(path)
    return True


def _remove_empty(folders: Sequence[Path]) -> None:
    with suppress(OSError):
        for folder in folders:
            folder.rmdir()


def refuse_used(path: Path, *, resumes: bool = True) -> None:
    """A new run needs a folder of its own. `resumes`: what it is made by can continue one."""
    if path.exists() and not path.is_dir():
        raise UserError(f"{str(path)!r} is a file", fix=_ANOTHER)
    if not path.is_dir() or never_trained(path) or not any(path.iterdir()):
        return
    if is_run(path):
        go_on = f"add {option('resume', True)} to continue it, or " if resumes else ""
        raise UserError(
            f"{str(path)!r} already holds a run", fix=f"{go_on}choose another folder: {option('out', 'DIR')}"
        )
    raise UserError(f"{str(path)!r} is a folder with other files in it", fix=_ANOTHER)


def newest_run() -> Path:
    """The run under `runs/` that was saved last."""
    names = []
    for path in Path("runs").glob("*/"):
        steps = step_folders(path / "checkpoints")
        if steps:
            names.append((steps[0][0].stat().st_mtime, path))
    if not names:
        raise UserError(
            "there is nothing to resume under runs/",
            fix=f"name the run's folder, {option('out', 'DIR')}, or train without {option('resume')}",
        )
    return max(names)[1]


def _where_it_stopped(
    path: Path,
    which: Literal[True, "best"] | int,
    overrides: Sequence[str],
    data: Sequence[str] | None,
    display: Display,
    mixers: Sequence[OwnMixer],
) -> tuple[AnyRunSpec, Checkpoint]:
    if not path.is_dir():
        raise UserError(f"{str(path)!r} is not a folder, so there is nothing to resume", fix=f"check {option('out')}")
    if (path / "run.toml").is_file() and read_spec(path, mixers=mixers).learns == "counting":
        raise UserError(f"{str(path)!r} was counted in one go: there is nothing to resume", fix="train again")
    checkpoint, skipped = newest_verified(path, needs=NEEDS)
    for line in skipped:
        display.say(f"skipped a damaged checkpoint, {line}")
    if checkpoint is None and never_trained(path):
        raise UserError(
            f"the run in {str(path)!r} ended before its first checkpoint, so there is nothing to resume",
            fix=f"start it again with the same {option('out')} and without {option('resume')}",
        )
    if checkpoint is None:
        raise UserError(
            f"{str(path)!r} has no checkpoint that can be trusted",
            fix=f"train again from the start: {option('out', 'DIR')}",
        )
    if which is not True:
        checkpoint = checkpoint_of(path, which, needs=NEEDS)
    before = read_spec(checkpoint.path, mixers=mixers)
    table = before.model_dump(mode="json", exclude_none=True)
    spec = make_spec(table, overrides, data=data, source=f"{path}/run.toml", mixers=mixers_of(before)).absolute()
    kept = ("batch", "window", "truncation", "optimizer")
    # Files may have moved: whether they are the same is seen when they are read.
    names = {} if data_sha256(path) is None else {name: getattr(before.data, name) for name in before.file_settings}
    same = spec.model_copy(update={"train": before.train, "data": spec.data.model_copy(update=names)})
    if same != before or any(getattr(spec.train, name) != getattr(before.train, name) for name in kept):
        raise UserError(
            "a resumed run keeps its task, seed, data, model, batch, window, truncation and optimizer",
            fix="train again to change them; the rest of train.* may be changed",
        )
    display.say(f"resumed from step {checkpoint.step} of {path}")
    if Progress.from_record(checkpoint.progress).is_over(spec.train):
        done, more = f"all {spec.train.steps} steps are done", "train.steps"
        if spec.train.seconds is not None:
            done, more = f"all {spec.train.seconds:g} seconds are spent", "train.seconds"
        display.say(f"{done}; to continue, raise {more}")
    return spec, checkpoint


def _table(recipe: str, mixers: Sequence[OwnMixer]) -> dict[str, Any]:
    """Of the `run.toml` of a run, relative names of files are those of its folder."""
    path = Path(recipe)
    if path.name == "run.toml" and path.is_file():
        return read_spec(path.parent, mixers=mixers).model_dump()
    if path.is_dir() and (path / "run.toml").is_file():
        return fine_tuning(path, mixers)
    return load_recipe(recipe)


def _make_deterministic(wanted: bool) -> None:
    if wanted:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    if wanted != torch.are_deterministic_algorithms_enabled():  # saying it again would load PyTorch's compiler
        torch.use_deterministic_algorithms(wanted)


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
