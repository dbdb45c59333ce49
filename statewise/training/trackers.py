"""Experiment trackers that a run can also report to: the same numbers as in `metrics.jsonl`, under the same names.

Each library is imported only if it is asked for; its own environment variables (`WANDB_MODE=offline`,
`MLFLOW_TRACKING_URI`, `TRACKIO_DIR`) say where its records go.
"""

from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from statewise.specs import UserError

_PROJECT = "statewise"


class Tracker(NamedTuple):
    log: Callable[[int, Mapping[str, float]], None]
    close: Callable[[], None]


def refuse_missing(kinds: tuple[str, ...]) -> None:
    """Before training: a tracker that is not installed."""
    for kind in kinds:
        if find_spec(kind) is None:
            raise UserError(f"train.log names {kind}, which is not installed", fix=f"pip install {kind}")


def open_tracker(kind: str, folder: Path, settings: Mapping[str, Any]) -> Tracker:
    """A run of the tracker, named like the folder, with the run's settings as its configuration."""
    return {"wandb": _wandb, "mlflow": _mlflow, "trackio": _trackio}[kind](folder, settings)


def _wandb(folder: Path, settings: Mapping[str, Any]) -> Tracker:
    import wandb

    run = wandb.init(project=_PROJECT, name=folder.name, dir=str(folder), config=dict(settings))
    return Tracker(lambda step, values: run.log(dict(values), step=step), run.finish)


def _mlflow(folder: Path, settings: Mapping[str, Any]) -> Tracker:
    from mlflow.tracking import MlflowClient

    client = MlflowClient()
    experiment = client.get_experiment_by_name(_PROJECT)
    number = client.create_experiment(_PROJECT) if experiment is None else experiment.experiment_id
    run = client.create_run(number, run_name=folder.name).info.run_id
    for name, value in _flat(settings):
        client.log_param(run, name, value)

    def log(step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            client.log_metric(run, name, value, step=step)

    return Tracker(log, lambda: client.set_terminated(run))


def _trackio(folder: Path, settings: Mapping[str, Any]) -> Tracker:
    import trackio

    trackio.init(project=_PROJECT, name=folder.name, config=dict(_flat(settings)))
    return Tracker(lambda step, values: trackio.log(dict(values), step=step), trackio.finish)


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
