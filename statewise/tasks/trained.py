"""The result of a training: where its run is, how it went, and the way to use it."""

from html import escape
from pathlib import Path
from typing import NamedTuple

from statewise.models import CustomMixer
from statewise.tasks.dispatch import load
from statewise.tasks.folder import read_spec
from statewise.tasks.run import Run
from statewise.training import History, Outcome, read_history


class Trained(NamedTuple):
    """What `train` returns: where the run is, how training went, and the way to use it.

    >>> trained = sw.train("elman", data="text.txt", settings={"train.steps": 20, "model.width": 16}, out="runs/short")
    >>> trained
    Trained('runs/short': 20 steps in ... s; best at step 20: nats ...)
    >>> trained.outcome.step
    20
    """

    path: Path
    outcome: Outcome
    resumed_from: int | None
    proof: bool | None  # deterministic: whether a second pass over the first steps gave the same weights
    verb: str  # the command to try first on such a run
    warning: str = ""  # that it diverged, or learned less than a trivial predictor knows
    mixers: tuple[CustomMixer, ...] = ()  # the user's own classes that it was trained with

    def load(self) -> Run:
        """Open the run that was trained: to evaluate it, generate, predict or translate.

        >>> trained = sw.train("elman", data="text.txt", settings={"train.steps": 20, "model.width": 16})
        >>> trained.load().evaluate().tokens > 0
        True
        """
        return load(self.path, mixer=self.mixers)

    @property
    def history(self) -> History:
        """The metrics of every recorded step, as a table: `trained.history["loss"]`.

        >>> trained = sw.train("elman", data="text.txt", settings={"train.steps": 20, "model.width": 16})
        >>> trained.history["step"]
        [10, 20]
        """
        return read_history(self.path, unit=read_spec(self.path, mixers=self.mixers).loss_name)

    def __repr__(self) -> str:
        outcome = self.outcome
        metrics = ", ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in outcome.evaluation.items())
        best = f"; best at step {outcome.best_step}: {metrics}" if metrics else ""
        warning = f"; {self.warning}" if self.warning else ""
        return f"Trained({str(self.path)!r}: {outcome.step:,} steps in {outcome.seconds:.1f} s{best}{warning})"

    def _repr_html_(self) -> str:
        return f"<p><code>{escape(repr(self))}</code></p>{self.history.curve_html()}"
