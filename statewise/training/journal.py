"""What a run records: metrics that repeat exactly, and times that do not; both also for experiment trackers."""

import json
import warnings
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from statewise.disk import append, is_plain, write
from statewise.specs import UserError, from_json, read_small
from statewise.training.trackers import Tracker

_LARGEST = 1 << 30  # bytes of a file of metrics


class Journal:
    """`metrics.jsonl` is a function of the spec (a resumed run's equals an uncut one's); `timing.jsonl` is not.

    `evaluated=False`: the evaluation of step `after_step` is made again, so earlier records of it are dropped.
    """

    def __init__(
        self, folder: Path, *, after_step: int = 0, evaluated: bool = True, trackers: Sequence[Tracker] = ()
    ) -> None:
        self._metrics = folder / "metrics.jsonl"
        self._timing = folder / "timing.jsonl"
        for path in (self._metrics, self._timing):
            _forget_after(path, after_step, evaluated=evaluated)
        writer = summary_writer()
        self._board = writer and writer(str(folder), purge_step=after_step + 1 if after_step else None)
        self._trackers = trackers

    def metrics(self, step: int, **values: float) -> None:
        _append(self._metrics, {"step": step, **values})
        self._scalars(step, values)

    def timing(self, step: int, **values: float) -> None:
        _append(self._timing, {"step": step, **values})
        self._scalars(step, values)

    def _scalars(self, step: int, values: dict[str, float]) -> None:
        if self._board is not None:
            for name, value in values.items():
                self._board.add_scalar(name, value, step)
        for tracker in self._trackers:
            tracker.log(step, values)

    def close(self) -> None:
        if self._board is not None:
            self._board.close()
        for tracker in self._trackers:
            tracker.close()


def summary_writer() -> Any:
    """The class that writes TensorBoard's event files, or None where TensorBoard (an extra) is not installed."""
    if find_spec("tensorboard") is None:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of TensorBoard's own dependencies
        from torch.utils.tensorboard.writer import SummaryWriter

        return SummaryWriter


def _append(path: Path, record: dict[str, Any]) -> None:
    append(path, json.dumps(record) + "\n")


def _forget_after(path: Path, step: int, *, evaluated: bool) -> None:
    """Drop what a run wrote after the checkpoint that it resumes from, and half-written lines."""
    if not is_plain(path):
        return
    kept = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            record = from_json(line)
            early = not evaluated and record["step"] == step and any(name.startswith("validation_") for name in record)
            if record["step"] <= step and not early:
                kept.append(line + "\n")
        except (ValueError, KeyError, TypeError):
            continue
    write(path, "".join(kept))


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """The records of a run, oldest first."""
    path = folder / "metrics.jsonl"
    if not path.exists():
        return []
    try:
        lines = read_small(path, largest=_LARGEST).split("\n")[:-1]  # a run that goes on may be writing the last one
    except UnicodeDecodeError as error:
        raise UserError(f"{str(path)!r} is not UTF-8 text: {error}", fix="remove the line") from None
    return [_record(line, f"{path} line {number}") for number, line in enumerate(lines, 1)]


def _record(line: str, where: str) -> dict[str, Any]:
    with suppress(ValueError):
        record = from_json(line)
        values = record.values() if isinstance(record, dict) and isinstance(record.get("step"), int) else [line]
        if all(isinstance(value, int | float | None) for value in values):
            return dict(record)
    raise UserError(f"{where} is not a record of metrics: {line[:80]!r}", fix="remove the line")
