"""How a study shows itself while it runs: a live table on a terminal, a plain line now and then elsewhere."""

import time
from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from statewise.comparison.trial import Failure, Found, Trial
from statewise.display import Status, time_left
from statewise.specs import StudySpec

Listed = Sequence[tuple[StudySpec, Sequence[Trial]]]  # of each study of a phase, its trials
_ENOUGH = 0.02  # share of the work after which the rest can be estimated


class Board:
    """Hears what a study does. This one shows nothing: for `--quiet` and for libraries."""

    def begin(self, listed: Listed, runs: Sequence[Found], failed: Sequence[Failure]) -> None: ...
    def started(self, trial: Trial) -> None: ...
    def moved(self, trial: Trial, words: Mapping[str, Any]) -> None: ...
    def ended(self, trial: Trial, run: Found) -> None: ...
    def failed(self, trial: Trial, failure: Failure) -> None: ...
    def say(self, text: str) -> None: ...
    def tick(self) -> None: ...
    def close(self) -> None: ...


def _share(words: Mapping[str, Any]) -> float:
    """The share of a trial that is done. Evaluating and measuring after training take little time."""
    if not words:
        return 0.0
    share: float = words.get("share", 1.0)
    return share


class Tally:
    """The state of a phase: which trials run and how far each is, which have ended and how."""

    def __init__(self, listed: Listed, runs: Sequence[Found], failed: Sequence[Failure]) -> None:
        self.listed = [(study, list(trials)) for study, trials in listed if trials]
        self.trials = list({trial.key: trial for _, trials in self.listed for trial in trials}.values())
        self.found = {result.key: result for result in runs}
        self.failures = {failure.key: failure for failure in failed}
        self.running: dict[str, tuple[Trial, Mapping[str, Any]]] = {}
        self._began = time.monotonic()
        self._before = self._cost_done

    @property
    def done(self) -> int:
        return len(self.found) + len(self.failures)

    @property
    def _cost_done(self) -> float:
        return sum(trial.cost for trial in self.trials if trial.key in self.found or trial.key in self.failures)

    def left(self) -> str:
        """The estimated time for the rest. A half-done trial counts as half."""
        running = sum(_share(words) * trial.cost for trial, words in self.running.values())
        since = self._cost_done - self._before + running
        rest = sum(trial.cost for trial in self.trials) - self._before - since
        if since < _ENOUGH * (since + rest):
            return ""
        seconds = (time.monotonic() - self._began) / since * rest
        return f"about {time_left(seconds)}"

    def headline(self) -> str:
        phase = "search: " if self.trials and self.trials[0].phase == "search" else ""
        lost = f"{len(self.failures)} failed" if self.failures else ""
        return "  ".join(filter(None, [f"{phase}{self.done}/{len(self.trials)} trials", lost, self.left()]))

    def doing(self, trial: Trial, words: Mapping[str, Any]) -> str:
        speed = f"  {words['tokens_per_second']:,.0f} tok/s" if "tokens_per_second" in words else ""
        return f"{words.get('doing', 'starting')}{speed}"

    def metric(self, study: StudySpec, trials: Sequence[Trial]) -> str:
        """The mean over the seeds that are done."""
        values = [self.found[trial.key].figures[study.metric] for trial in trials if trial.key in self.found]
        return f"{mean(values):.4f}" if values else ""

    def table(self) -> Table:
        table = Table(title=Text(self.headline()), title_justify="left")
        for heading in ("entry", "trials", "metric", "now"):
            table.add_column(heading, justify="left" if heading in ("entry", "now") else "right", no_wrap=True)
        for study, trials in self.listed:
            table.add_section()
            table.add_row(f"[bold]{escape(study.title)}[/]", "", escape(study.metric.replace("_", " ")), "")
            for entry in dict.fromkeys(trial.entry for trial in trials):
                mine = [trial for trial in trials if trial.entry == entry]
                done = sum(trial.key in self.found for trial in mine)
                failed = sum(trial.key in self.failures for trial in mine)
                now = [
                    f"seed {trial.seed}: {self.doing(*self.running[trial.key])}"
                    for trial in mine
                    if trial.key in self.running
                ]
                count = f"{done}/{len(mine)}" + (f" ({failed} failed)" if failed else "")
                table.add_row(escape(entry), count, self.metric(study, mine), escape("  ".join(now)))
        return table


class _Counting(Board):
    """What both displays share: the tally, kept up to date."""

    def __init__(self, status: Status) -> None:
        self._status = status
        self._tally: Tally | None = None

    @property
    def tally(self) -> Tally:
        assert self._tally is not None
        return self._tally

    def begin(self, listed: Listed, runs: Sequence[Found], failed: Sequence[Failure]) -> None:
        self._tally = Tally(listed, runs, failed)
        if runs or failed:
            self.say(f"{len(runs) + len(failed)} of {len(self._tally.trials)} trials were done before")

    def started(self, trial: Trial) -> None:
        self.tally.running[trial.key] = trial, {}

    def moved(self, trial: Trial, words: Mapping[str, Any]) -> None:
        self.tally.running[trial.key] = trial, words

    def ended(self, trial: Trial, run: Found) -> None:
        self.tally.running.pop(trial.key, None)
        self.tally.found[trial.key] = run

    def failed(self, trial: Trial, failure: Failure) -> None:
        self.tally.running.pop(trial.key, None)
        self.tally.failures[trial.key] = failure
        self.say(f"{trial.entry}, seed {trial.seed}, failed: {failure.error.splitlines()[0]}")

    def say(self, text: str) -> None:
        self._status.say(text)


class LiveTable(_Counting):
    """A row for each entry, redrawn in place."""

    def __init__(self, status: Status) -> None:
        super().__init__(status)
        self._live = Live(console=status.console, auto_refresh=False, transient=True)

    def begin(self, listed: Listed, runs: Sequence[Found], failed: Sequence[Failure]) -> None:
        super().begin(listed, runs, failed)
        self._live.start()
        self.tick()

    def tick(self) -> None:
        self._live.update(self.tally.table(), refresh=True)

    def close(self) -> None:
        self._live.stop()


class Lines(_Counting):
    """Plain lines: the headline, and how far each running trial is."""

    def tick(self) -> None:
        if not self._status.line_is_due():
            return
        running = [
            f"{trial.entry}:{trial.seed} {self.tally.doing(trial, words)}"
            for trial, words in self.tally.running.values()
        ]
        self.say("  ".join([self.tally.headline(), *running]))

    def close(self) -> None: ...


def make_board(*, quiet: bool = False) -> Board:
    if quiet:
        return Board()
    status = Status()
    return LiveTable(status) if status.redraws else Lines(status)
