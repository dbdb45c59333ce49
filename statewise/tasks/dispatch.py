"""The one place where a spec's task becomes the code that does it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, assert_never

from statewise.models import AnyMixer, own_mixers
from statewise.specs import (
    AnyRunSpec,
    ClassificationSpec,
    ForecastingSpec,
    LanguageModelSpec,
    TaggingSpec,
    TranslationSpec,
    TreeSpec,
)
from statewise.tasks.classification import ClassificationEvaluation, ClassificationJob, ClassificationRun
from statewise.tasks.forecasting import ForecastEvaluation, ForecastingJob, ForecastingRun
from statewise.tasks.job import Job, Opening
from statewise.tasks.language_model import LanguageModelEvaluation, LanguageModelJob, LanguageModelRun
from statewise.tasks.run import NEEDS, Opened, Run, read_spec
from statewise.tasks.shipped import find_run
from statewise.tasks.tagging import TaggingEvaluation, TaggingJob, TaggingRun
from statewise.tasks.translation import TranslationEvaluation, TranslationJob, TranslationRun
from statewise.tasks.tree import TreeEvaluation, TreeJob, TreeRun
from statewise.training import find_published, pick_device


def open_job(spec: AnyRunSpec, opening: Opening) -> Job:
    match spec:
        case LanguageModelSpec():
            return LanguageModelJob.open(spec, opening)
        case ClassificationSpec():
            return ClassificationJob.open(spec, opening)
        case TranslationSpec():
            return TranslationJob.open(spec, opening)
        case TaggingSpec():
            return TaggingJob.open(spec, opening)
        case TreeSpec():
            return TreeJob.open(spec, opening)
        case ForecastingSpec():
            return ForecastingJob.open(spec, opening)
        case _:
            assert_never(spec)


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
    found = find_published(folder, needs=NEEDS)
    spec = read_spec(found.path, mixers=mixers)
    run = _open_run(spec, Opened(folder, found.path, found.skipped, pick_device(device)))
    run.mixers = mixers
    return run


def _open_run(spec: AnyRunSpec, opened: Opened) -> Run:
    match spec:
        case LanguageModelSpec():
            return LanguageModelRun.open(spec, opened)
        case ClassificationSpec():
            return ClassificationRun.open(spec, opened)
        case TranslationSpec():
            return TranslationRun.open(spec, opened)
        case TaggingSpec():
            return TaggingRun.open(spec, opened)
        case TreeSpec():
            return TreeRun.open(spec, opened)
        case ForecastingSpec():
            return ForecastingRun.open(spec, opened)
        case _:
            assert_never(spec)


def figures_of(spec: AnyRunSpec) -> list[str]:
    """The numbers that a run's evaluation gives."""
    found: type[Any]
    match spec:
        case LanguageModelSpec():
            found = LanguageModelEvaluation
        case ClassificationSpec():
            found = ClassificationEvaluation
        case TranslationSpec():
            found = TranslationEvaluation
        case TaggingSpec():
            found = TaggingEvaluation
        case TreeSpec():
            found = TreeEvaluation
        case ForecastingSpec():
            found = ForecastEvaluation
        case _:
            assert_never(spec)
    return [name for name, kind in found.__annotations__.items() if kind in (float, float | None)]
