"""From a plan to what was found: every trial once, side by side, whatever happens to the one who runs them."""

import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

import torch

from statewise.comparison.pool import News, Pool
from statewise.comparison.progress import Board
from statewise.comparison.record import Log, Order, read_failure, read_found, trial_folder, write_failure, write_order
from statewise.comparison.study import as_table
from statewise.comparison.trial import Failure, Found, Trial, printed_settings
from statewise.comparison.worker import STOPPED, sent
from statewise.disk import locked, make_folder, write
from statewise.specs import StudySpec, UserError, dumps, option
from statewise.training import Signals

_TICK = 0.2  # seconds between two looks at the signals and the clock
_TRIES = 2  # times that a trial whose process died is begun in one go


class Plans(Protocol):
    """What is to be run: some trials at once, the others when these are known."""

    @property
    def study(self) -> StudySpec: ...
    @property
    def search_trials(self) -> Sequence[Trial]: ...
    def final_trials(self, results: list[Found], /) -> Sequence[Trial]: ...


class Work(NamedTuple):
    """A plan, and the folder that its trials are kept in."""

    plan: Plans
    folder: Path


class Ran(NamedTuple):
    """`left` were not run, or not to their end, because a signal came; running the study again goes on with them."""

    found: list[Found]
    failed: list[Failure]
    left: list[Trial]


def run(
    works: Sequence[Work],
    *,
    workers: int = 2,
    threads: int = 1,
    display: Board | None = None,
    signals: Signals | None = None,
) -> list[Ran]:
    """Run what is not yet done of some plans, side by side, each in its own folder. What was found is not run again."""
    for name, value in (("workers", workers), ("threads", threads)):
        if value < 1:
            raise UserError(f"{name} = {value} is not valid, expected at least 1")
    display, signals = display or Board(), signals or Signals()
    with ExitStack() as held:
        locks = [held.enter_context(work_folder(work)) for work in works]
        pool = held.enter_context(
            Pool(
                workers=workers,
                threads=threads,
                log=works[0].folder / "workers.log",
                devices=devices_for([work.plan for work in works]),
                keep=locks,
                mixers=mixers_for(works),
            )
        )
        return in_phases(works, display, signals, lambda phase: _drive(phase, signals, pool))


@contextmanager
def work_folder(work: Work) -> Iterator[int]:
    """The folder of a plan, made and locked, with the study in it: `statewise compare FOLDER/study.toml`."""
    make_folder(work.folder / "trials", inside=work.folder)
    with locked(work.folder) as lock:
        write(work.folder / "study.toml", dumps(as_table(work.plan.study)))
        yield lock


class Phase:
    """Trials that can be run in any order, and how far they are."""

    def __init__(self, listed: Sequence[tuple[Work, Sequence[Trial]]], *, display: Board) -> None:
        self.folder, self.display = listed[0][0].folder, display
        self._work: dict[str, Work] = {}
        self._log = {work.folder: Log(work.folder) for work, _ in listed}
        noted = {key for log in self._log.values() for key in log.ended()}
        self.trials: list[Trial] = []
        self.found: dict[str, Found] = {}
        self.failed: dict[str, Failure] = {}
        for work, trials in listed:
            for trial in trials:
                if trial.key not in self._work:  # two entries may be the same run
                    self._work[trial.key] = work
                    self.trials.append(trial)
        for trial in self.trials:
            path = self.path(trial)
            failure = read_failure(path, say=display.say)
            if (result := read_found(path, say=display.say)) is not None:
                self.found[trial.key] = result
                if trial.key not in noted:
                    self.note("end", trial)  # its driver was killed before it could say so
            elif failure is not None and failure.lasting:
                self.failed[trial.key] = failure
        left = [trial for trial in self.trials if trial.key not in self.found and trial.key not in self.failed]
        self.waiting = deque(sorted(left, key=_longest_first))
        display.begin(
            [(work.plan.study, trials) for work, trials in listed],
            list(self.found.values()),
            list(self.failed.values()),
        )

    def note(self, event: str, trial: Trial) -> None:
        self._log[self._work[trial.key].folder].add(event, trial)

    def path(self, trial: Trial) -> Path:
        return trial_folder(self._work[trial.key].folder, trial.key)

    def order(self, trial: Trial) -> Order:
        study = self._work[trial.key].plan.study
        return Order(trial._replace(spec=trial.spec.absolute()), study.metric, study.budget.context)

    def prepare(self, trial: Trial) -> Path:
        """Write down what is to be done; the folder to do it in."""
        path = self.path(trial)
        make_folder(path, inside=path.parents[1])
        (path / "failure.json").unlink(missing_ok=True)
        write_order(path, self.order(trial))
        self.note("start", trial)
        self.display.started(trial)
        return path

    def conclude(self, trial: Trial) -> bool:
        """Take in what a trial left. False: nothing."""
        path = self.path(trial)
        if (result := read_found(path, say=self.display.say)) is not None:
            self.found[trial.key] = result
            self.note("end", trial)
            self.display.ended(trial, result)
        elif (failure := read_failure(path)) is not None:
            self.give_up(trial, failure)
        else:
            return False
        return True

    def give_up(self, trial: Trial, failure: Failure) -> None:
        self.failed[trial.key] = failure
        self.note("failure", trial)
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
            result._replace(
                entry=trial.entry,
                seed=trial.seed,
                phase=trial.phase,
                settings={**printed_settings(trial.spec), **trial.settings},
            )
            for trial, result in named
        ]

    def failures(self, trials: Iterable[Trial]) -> list[Failure]:
        named = [(trial, self.failed[trial.key]) for trial in trials if trial.key in self.failed]
        return [failure._replace(entry=trial.entry, seed=trial.seed, phase=trial.phase) for trial, failure in named]


def in_phases(works: Sequence[Work], display: Board, signals: Signals, drive: Callable[[Phase], None]) -> list[Ran]:
    """The searches, then what they decided. `drive` runs what waits in a phase until it is done or a signal comes."""
    rans = [Ran([], [], []) for _ in works]
    try:
        for number in range(2):
            listed = [
                (work, list(work.plan.search_trials if number == 0 else work.plan.final_trials(ran.found[:])))
                for work, ran in zip(works, rans)
            ]
            if not any(trials for _, trials in listed):
                continue
            phase = Phase(listed, display=display)
            if phase.waiting:
                drive(phase)
            for (_, trials), ran in zip(listed, rans):
                ran.found.extend(phase.results(trials))
                ran.failed.extend(phase.failures(trials))
                ended = phase.found.keys() | phase.failed.keys()
                ran.left.extend({trial.key: trial for trial in trials if trial.key not in ended}.values())
            if signals.received:
                break
    finally:
        display.close()
    return rans


def _longest_first(trial: Trial) -> tuple[int, float]:
    """Of each seed, so that no worker is left alone with a long trial at the end."""
    return trial.seed, -trial.cost


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
            fix=f"correct the cause; fewer {option('workers')} need less memory",
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


def _tail(path: Path) -> str:
    return "\n".join(f"  {line}" for line in path.read_text(encoding="utf-8", errors="replace").splitlines()[-10:])


def mixers_for(works: Sequence[Work]) -> list[dict[str, str]]:
    """The user's own classes that the studies are made of, as plain data for the workers."""
    return sent(tuple(dict.fromkeys(own for work in works for own in work.plan.study.mixers)))


def devices_for(plans: Sequence[Plans]) -> list[str]:
    """The GPUs that workers take in turn: none where there is one or none, or where a study names one."""
    count = torch.cuda.device_count()
    named = any(wanted_device(plan.study) not in ("auto", "cuda") for plan in plans)
    if count < 2 or named:
        return []
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return visible.split(",") if visible else [str(number) for number in range(count)]


def wanted_device(study: StudySpec) -> str:
    device: str = study.base.get("train", {}).get("device", "auto")
    return device
