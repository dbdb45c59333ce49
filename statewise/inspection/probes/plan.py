"""Which models are asked which questions, at which size; and the asking, on every core."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path

import torch

from statewise.data.embedded import MEMORY_TASKS
from statewise.inspection.probes.trial import Probed, Trial, fitted, kept_probe
from statewise.inspection.progress import Progress
from statewise.models import LINEAGE
from statewise.specs import LanguageModelSpec, TrainSpec, UserError, lens_setting, load_recipe, nearest, parse_spec


def planned(
    *,
    tasks: Sequence[str],
    families: Sequence[str],
    parameters: int,
    train: TrainSpec,
    longest: int,
    factors: Sequence[int],
    rows: int,
    seed: int,
) -> dict[tuple[str, str], Trial]:
    """Each family as its recipe has it, but of the width that gives it so many parameters."""
    known = {row.name: row for row in LINEAGE}
    for name in families:
        if name not in known:
            raise UserError(f"{name!r} is not a family of models", fix=nearest(name, known))
    for name in tasks:
        if name not in MEMORY_TASKS:
            raise UserError(f"{name!r} is not a question about memory", fix=nearest(name, MEMORY_TASKS))
    found = {}
    for task in tasks or tuple(MEMORY_TASKS):
        for family in families or tuple(known):
            spec = parse_spec(load_recipe(known[family].recipe), source=f"recipe {known[family].recipe!r}")
            assert isinstance(spec, LanguageModelSpec)
            model = fitted(spec.model, vocab=len(MEMORY_TASKS[task].symbols), parameters=parameters)
            sizes = tuple(longest * factor for factor in factors)
            found[task, family] = Trial(task, model, train, longest, sizes, rows, seed)
    return found


def run(
    trials: Mapping[tuple[str, str], Trial], *, folder: Path, workers: int, progress: Progress
) -> dict[tuple[str, str], Probed]:
    """All of them; what was found before is not found again."""
    found = dict(progress.over(_each(trials, folder=folder, workers=workers), "trials", total=len(trials)))
    return {name: found[name] for name in trials}


def _each(
    trials: Mapping[tuple[str, str], Trial], *, folder: Path, workers: int
) -> Iterator[tuple[tuple[str, str], Probed]]:
    if workers == 1 or len(trials) == 1:
        for name, trial in trials.items():
            yield name, kept_probe(trial, folder=folder)
        return
    # A fork of a process that has used torch's threads can hang; a fresh one cannot.
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_alone) as pool:
        waiting = {pool.submit(kept_probe, trial, folder=folder): name for name, trial in trials.items()}
        try:
            for done in as_completed(waiting):
                yield waiting[done], done.result()
        except BrokenProcessPool:
            raise UserError(
                "a process that was asking a model has ended; perhaps memory ran out",
                fix=f"finished probes are kept; run it again with {lens_setting('workers', 1)}",
            ) from None


def _alone() -> None:
    """One thread for each worker: together they fill the machine."""
    torch.set_num_threads(1)
