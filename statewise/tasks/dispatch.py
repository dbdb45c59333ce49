"""The one place that knows all tasks: a new one is a line of `TASKS`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from statewise.models import AnyMixer, own_mixers
from statewise.specs import AnyRunSpec
from statewise.tasks.classification import ClassificationJob, ClassificationRun
from statewise.tasks.folder import NEEDS, Opened, find_run, read_spec
from statewise.tasks.forecasting import ForecastingJob, ForecastingRun
from statewise.tasks.job import Job, Opening
from statewise.tasks.language_model import LanguageModelJob, LanguageModelRun
from statewise.tasks.run import Run, metrics_in
from statewise.tasks.tagging import TaggingJob, TaggingRun
from statewise.tasks.translation import TranslationJob, TranslationRun
from statewise.tasks.tree import TreeJob, TreeRun
from statewise.training import find_published, pick_device


class Task(NamedTuple):
    job: type[Job]  # what trains
    run: type[Run]  # what a trained run can do


TASKS: Mapping[str, Task] = MappingProxyType(
    {
        "language_model": Task(LanguageModelJob, LanguageModelRun),
        "classification": Task(ClassificationJob, ClassificationRun),
        "tagging": Task(TaggingJob, TaggingRun),
        "tree": Task(TreeJob, TreeRun),
        "forecasting": Task(ForecastingJob, ForecastingRun),
        "translation": Task(TranslationJob, TranslationRun),
    }
)


def open_job(spec: AnyRunSpec, opening: Opening) -> Job:
    return TASKS[spec.task].job.open(spec, opening)


def load(path: str | Path, *, device: str = "auto", mixer: AnyMixer | Sequence[AnyMixer] | None = None) -> Run:
    """Open a run on a device ("auto", "cpu", "cuda", ...). Returns the `Run` of its task.

    `path` is the folder of a run, or the name of a run that comes with the package (`shakespeare-lstm`). Every file is
    checked against its sha256; where one is damaged, the newest whole checkpoint is opened instead. `mixer` is the
    class of your own that the run was trained with, or the file it is in: nothing that lies in the folder is executed.

    >>> run = sw.load("runs/lstm", device="cpu")
    >>> len(run.generate("the cat", tokens=5))
    5
    """
    folder, mixers = find_run(path), own_mixers(mixer)
    published = find_published(folder, needs=NEEDS)
    spec = read_spec(published.path, mixers=mixers)
    run = TASKS[spec.task].run(spec, Opened(folder, published.path, published.skipped, pick_device(device)))
    run.mixers = mixers
    return run


def metric_names(spec: AnyRunSpec) -> list[str]:
    """The metrics that a run's evaluation gives."""
    return [metric.name for metric in metrics_in(TASKS[spec.task].run._evaluation)]


def metric_tables(spec: AnyRunSpec) -> list[str]:
    """Tables of one metric by a number, such as a distance, that a run's evaluation gives."""
    fields = TASKS[spec.task].run._evaluation.__annotations__.items()
    return [name for name, kind in fields if kind == dict[int, float]]


def compared_data(task: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The settings of the data that runs must share to be compared; and, for metrics per token, those of tokens."""
    return TASKS[task].job.question, TASKS[task].job.tokens
