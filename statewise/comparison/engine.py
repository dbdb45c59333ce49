"""From a plan to what was found: every trial once, side by side, whatever happens to the one who runs them."""

import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import torch

from statewise.comparison.lock import locked
from statewise.comparison.pool import News, Pool
from statewise.comparison.progress import Board, Quiet
from statewise.comparison.record import (
    Log,
    Order,
    read_failure,
    read_found,
    trial_folder,
    write_failure,
    write_order,
    write_text,
)
from statewise.comparison.study import as_table
from statewise.comparison.trial import Failure, Found, Trial
from statewise.comparison.worker import STOPPED, sent
from statewise.specs import UserError
from statewise.specs.study import StudySpec
from statewise.specs.toml import dumps
from statewise.training.folder import make_folder
from statewise.training.signals import Signals

_TICK = 0.2  # seconds between two looks at the signals and the clock
_TRIES = 2  # times that a trial whose process died is begun in one go


class Plans(Protocol):
    """What is to be run: some trials at once, the others when these are known."""

    @property
    def study(self) -> StudySpec: ...
    @property
    def search_trials(self) -> Sequence[Trial]: ...
    def final_trials(self, found: list[Found], /) -> Sequence[Trial]: ...


class Ran(NamedTuple):
    """`left` were not run, or not to their end, because a signal came; running the study again goes on with them."""

    found: list[Found]
    failed: list[Failure]
    left: list[Trial]


def run(
    plan: Plans,
    *,
    folder: str | Path,
    workers: int = 2,
    threads: int = 1,
    display: Board | None = None,
    signals: Signals | None = None,
) -> Ran:
    """Run what is not yet done of a plan, in `folder`. What was found before is not done again."""
    for name, value in (("workers", workers), ("threads", threads)):
        if value < 1:
            raise UserError(f"{name} = {value} is not valid, expected at least 1")
    folder, display, signals = Path(folder), display or Quiet(), signals or Signals()
    make_folder(folder / "trials")
    with locked(folder) as lock:
        write_study(folder, plan.study)
        pool = Pool(
            workers=workers,
            threads=threads,
            log=folder / "workers.log",
            devices=devices_for(plan),
            keep=[lock],
            mixers=sent(plan.study.mixers),
        )
        with pool:
            return in_phases(plan, folder, display, signals, lambda phase: _drive(phase, signals, pool))


def write_study(folder: Path, study: StudySpec) -> None:
    """So that the same can be run again: `statewise compare FOLDER/study.toml`."""
    write_text(folder / "study.toml", dumps(as_table(study)))


class Phase:
    """Trials that can be run in any order, and how far they are."""

    def __init__(self, trials: Sequence[Trial], *, study: StudySpec, folder: Path, display: Board) -> None:
        self.folder, self.display, self.study = folder, display, study
        self.log = Log(folder)
        self.trials = list({trial.key: trial for trial in trials}.values())  # two entries may be the same run
        self.found: dict[str, Found] = {}
        self.failed: dict[str, Failure] = {}
        self.waiting: deque[Trial] = deque()
        noted = self.log.ended()
        for trial in self.trials:
            path = self.path(trial)
            failure = read_failure(path)
            if (found := read_found(path)) is not None:
                self.found[trial.key] = found
                if trial.key not in noted:
                    self.log.add("end", trial)  # its driver was killed before it could say so
            elif failure is not None and failure.lasting:
                self.failed[trial.key] = failure
            else:
                self.waiting.append(trial)
        display.begin(study, self.trials, list(self.found.values()), list(self.failed.values()))

    def path(self, trial: Trial) -> Path:
        return trial_folder(self.folder, trial.key)

    def order(self, trial: Trial) -> Order:
        return Order(trial._replace(spec=trial.spec.absolute()), self.study.metric, self.study.budget.context)

    def prepare(self, trial: Trial) -> Path:
        """Write down what is to be done; the folder to do it in."""
        path = self.path(trial)
        make_folder(path)
        (path / "failure.json").unlink(missing_ok=True)
        write_order(path, self.order(trial))
        self.log.add("start", trial)
        self.display.started(trial)
        return path

    def conclude(self, trial: Trial) -> bool:
        """Take in what a trial left. False: nothing."""
        path = self.path(trial)
        if (found := read_found(path)) is not None:
            self.found[trial.key] = found
            self.log.add("end", trial)
            self.display.ended(trial, found)
        elif (failure := read_failure(path)) is not None:
            self.give_up(trial, failure)
        else:
            return False
        return True

    def give_up(self, trial: Trial, failure: Failure) -> None:
        self.failed[trial.key] = failure
        self.log.add("failure", trial)
        self.display.failed(trial, failure)

    def died(self, trial: Trial, why: str) -> None:
        """Its process is gone without a word, and not for the first time."""
        failure = Failure(trial.key, trial.entry, trial.seed, trial.phase, why, lasting=False)
        write_failure(self.path(trial), failure)
        self.give_up(trial, failure)

    def results(self, trials: Iterable[Trial]) -> list[Found]:
        """In the order of the plan, under the names that the plan has for them."""
        named = [(trial, self.found[trial.key]) for trial in trials if trial.key in self.found]
        return [
            found._replace(entry=trial.entry, seed=trial.seed, phase=trial.phase, settings=trial.settings)
            for trial, found in named
        ]

    def failures(self, trials: Iterable[Trial]) -> list[Failure]:
        named = [(trial, self.failed[trial.key]) for trial in trials if trial.key in self.failed]
        return [failure._replace(entry=trial.entry, seed=trial.seed, phase=trial.phase) for trial, failure in named]


def in_phases(plan: Plans, folder: Path, display: Board, signals: Signals, drive: Callable[[Phase], None]) -> Ran:
    """The search, then what it decided. `drive` runs what waits in a phase until it is done or a signal comes."""
    ran = Ran([], [], [])
    search = list(plan.search_trials)
    try:
        for number in range(2):
            trials = search if number == 0 else list(plan.final_trials(ran.found[:]))
            if not trials:
                continue
            phase = Phase(trials, study=plan.study, folder=folder, display=display)
            if phase.waiting:
                drive(phase)
            ran.found.extend(phase.results(trials))
            ran.failed.extend(phase.failures(trials))
            ran.left.extend(
                trial for trial in phase.trials if trial.key not in phase.found and trial.key not in phase.failed
            )
            if signals.received:
                break
    finally:
        display.close()
    return ran


def _drive(phase: Phase, signals: Signals, pool: Pool) -> None:
    tries: dict[str, int] = {}
    while (phase.waiting or pool.busy) and not signals.received:
        while phase.waiting and pool.room():
            trial = phase.waiting.popleft()
            tries[trial.key] = tries.get(trial.key, 0) + 1
            pool.give(trial, phase.prepare(trial))
        for news in pool.news(_TICK):
            _take_in(news, phase, tries)
        phase.display.tick()
    if pool.busy:
        phase.display.say("stopping: trials in progress are saved first; once more to leave at once")
        for news in pool.stop():
            if news.kind == "done" and news.trial is not None:
                phase.conclude(news.trial)


def _take_in(news: News, phase: Phase, tries: dict[str, int]) -> None:
    if news.kind == "lost" and not news.words["ready"]:
        raise UserError(
            f"a worker could not start (exit code {news.words['code']}):\n{_tail(phase.folder / 'workers.log')}",
            fix="mend what it says there; fewer --workers take less memory",
        )
    if news.trial is None:
        return
    if news.kind == "told":
        phase.display.moved(news.trial, news.words)
    elif not phase.conclude(news.trial):
        code = int(news.words["done" if news.kind == "done" else "code"])
        if code != STOPPED and tries[news.trial.key] >= _TRIES:
            phase.died(news.trial, f"its process ended with {_ending(code)}; see {phase.path(news.trial) / 'log.txt'}")
        else:
            phase.waiting.append(news.trial)


def _ending(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    known = {number.value: number.name for number in signal.Signals}
    hint = " (out of memory?)" if -code == signal.SIGKILL else ""
    return f"signal {known.get(-code, -code)}{hint}"


def _tail(path: Path, lines: int = 10) -> str:
    return "\n".join(f"  {line}" for line in path.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])


def devices_for(plan: Plans) -> list[str]:
    """The GPUs that workers take in turn: none where there is one or none, or where the study names one."""
    count = torch.cuda.device_count()
    named = plan.study.base.get("train", {}).get("device", "auto") not in ("auto", "cuda")
    if count < 2 or named:
        return []
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return visible.split(",") if visible else [str(number) for number in range(count)]
