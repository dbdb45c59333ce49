"""Training by counting: one pass over the text instead of a loop, and the same run folder."""

import time
from collections.abc import Callable
from typing import Any, Protocol

import torch

from statewise.core import Machine
from statewise.training.folder import RunFolder, model_tensors, weights_sha256
from statewise.training.journal import Journal
from statewise.training.loop import Outcome
from statewise.training.progress import Display, Silent
from statewise.training.stop import Signals, Stopped


class CountingTask(Protocol):
    def count(self, model: Any) -> int:
        """Let the model count the training text; returns the number of tokens."""

    def evaluate(self, model: Any, poll: Callable[[], None]) -> dict[str, float]:
        """Validation metrics. `poll` raises when the run should end."""


def count(
    model: Machine[Any],
    task: CountingTask,
    *,
    folder: RunFolder | None = None,
    display: Display | None = None,
    signals: Signals | None = None,
) -> Outcome:
    """Count, evaluate, publish: one step. After a signal before the end there is no model in the folder."""

    def poll() -> None:
        if signals is not None and signals.received:
            raise Stopped(signals.received, 0)

    began = time.monotonic()
    tokens = task.count(model)
    seconds = time.monotonic() - began
    speed = tokens / max(seconds, 1e-9)
    poll()
    with torch.no_grad():
        metrics = task.evaluate(model.eval(), poll)
    if folder is not None:
        journal = Journal(folder.path)
        journal.metrics(1, tokens=tokens, **{f"validation_{name}": value for name, value in metrics.items()})
        journal.timing(1, tokens_per_second=speed, seconds=seconds)
        journal.close()
        folder.publish(model_tensors(model))  # last: before it, a kill leaves a run that was not counted
    (display or Silent()).say(f"counted {tokens:,} tokens, {speed:,.0f} a second")
    return Outcome(1, 1, metrics, weights_sha256(model), speed, seconds)
