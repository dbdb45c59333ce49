"""The same trials on a Ray cluster: one that runs already, or else one that Ray starts here for as long as it takes.

A task is one trial in a fresh process. It works in the study's folder, so a cluster of several machines wants that
folder on a disk they share: then a trial whose machine died is resumed on another. Without one it is begun again, and
its result still comes back.
"""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from statewise.cluster import ray_cluster
from statewise.comparison.engine import Phase, Ran, Work, in_phases, mixers_for, wanted_device, work_folder
from statewise.comparison.progress import Board
from statewise.comparison.record import (
    found_of,
    found_record,
    order_of,
    order_record,
    read_failure,
    read_found,
    write_failure,
    write_found,
    write_order,
)
from statewise.comparison.trial import Failure, Trial
from statewise.comparison.worker import received, run_trial
from statewise.disk import locked, make_folder
from statewise.specs import optional
from statewise.training import Signals

_TICK = 0.2  # seconds between two looks at the signals
_GRACE = 20.0  # seconds that a cancelled trial may take to save itself
_RETRIES = 2  # times that a trial whose process or machine died is begun again
_PATIENCE = 60.0  # seconds that a trial waits for one that was given up to let go of its folder


def run_on_ray(
    works: Sequence[Work],
    *,
    workers: int = 2,
    threads: int = 1,
    display: Board | None = None,
    signals: Signals | None = None,
) -> list[Ran]:
    """`engine.run`, elsewhere: `workers` trials at a time, each with `threads` of Ray's CPUs (and a GPU)."""
    display, signals = display or Board(), signals or Signals()
    works = [work._replace(folder=work.folder.absolute()) for work in works]
    with ExitStack() as held:
        ray = held.enter_context(ray_cluster(optional("ray", extra="ray", needed_by="trials on a Ray cluster")))
        for work in works:
            held.enter_context(work_folder(work))
        on_cpu = all(wanted_device(work.plan.study) == "cpu" for work in works)
        gpus = 1 if not on_cpu and ray.cluster_resources().get("GPU", 0) >= 1 else 0
        # (A process takes one trial: what its memory was, is then that trial's alone.)
        task = ray.remote(num_cpus=threads, num_gpus=gpus, max_retries=_RETRIES, max_calls=1)(_work)
        told = (threads, mixers_for(works))
        return in_phases(works, display, signals, lambda phase: _drive(ray, task, phase, signals, workers, told))


def _work(path: str, order: dict[str, Any], threads: int, mixers: list[dict[str, str]]) -> dict[str, Any]:
    """On the cluster: one trial, and what it left as plain data."""
    torch.set_num_threads(threads)
    folder = Path(path)
    make_folder(folder)
    with locked(folder, patience=_PATIENCE, wait=True):
        own = received(mixers)
        write_order(folder, order_of(order, source="the trial", mixers=own))
        run_trial(folder, mixers=own)
        result, failure = read_found(folder), read_failure(folder)
        return {
            "found": None if result is None else found_record(result),
            "failure": None if failure is None else failure._asdict(),
        }


def _drive(
    ray: Any, task: Any, phase: Phase, signals: Signals, workers: int, told: tuple[int, list[dict[str, str]]]
) -> None:
    """`told`: what `_work` is given for every trial."""
    running: dict[Any, Trial] = {}
    while (phase.waiting or running) and not signals.received:
        while phase.waiting and len(running) < workers:
            trial = phase.waiting.popleft()
            path = phase.prepare(trial)
            running[task.remote(str(path), order_record(phase.order(trial)), *told)] = trial
        done, _ = ray.wait(list(running), timeout=_TICK)
        for reference in done:
            _take_in(ray, reference, running.pop(reference), phase)
        phase.display.tick()
    if running:
        phase.display.say("stopping: trials in progress are saved first; once more to leave at once")
        _cancel(ray, running, phase)


def _take_in(ray: Any, reference: Any, trial: Trial, phase: Phase) -> None:
    try:
        left = ray.get(reference)
    except ray.exceptions.RayError as error:
        phase.died(trial, f"Ray could not run it: {type(error).__name__}: {str(error).splitlines()[0]}")
        return
    path = phase.path(trial)
    # Where the disk is shared, these are there already.
    if left["found"] is not None and read_found(path) is None:
        write_found(path, found_of(left["found"], source="what Ray gave back"))
    if left["failure"] is not None and read_failure(path) is None:
        write_failure(path, Failure(**left["failure"]))
    if not phase.conclude(trial):
        phase.died(trial, "it was stopped on the cluster")


def _cancel(ray: Any, running: dict[Any, Trial], phase: Phase) -> None:
    """An interrupt lets a training save itself; who has not ended after a while is ended."""
    for reference in running:
        ray.cancel(reference, force=False)
    until = time.monotonic() + _GRACE
    waiting = list(running)
    while waiting and time.monotonic() < until:
        _, waiting = ray.wait(waiting, num_returns=len(waiting), timeout=_TICK)
    for reference in waiting:
        ray.cancel(reference, force=True)
    for trial in running.values():
        phase.conclude(trial)
