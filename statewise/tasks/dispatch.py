"""The one place that knows all tasks (a new one is a line of `TASKS`); opens runs, also that of a training."""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from statewise.data import SHARD_BYTES, ExampleIndex
from statewise.models import AnyMixer, CustomMixer, own_mixers
from statewise.specs import AnyRunSpec, load_recipe, make_spec
from statewise.tasks.classification import ClassificationJob, ClassificationRun
from statewise.tasks.folder import NEEDS, Opened, find_run, read_spec
from statewise.tasks.forecasting import ForecastingJob, ForecastingRun
from statewise.tasks.job import Job, Opening, Progress
from statewise.tasks.language_model import LanguageModelJob, LanguageModelRun
from statewise.tasks.run import Run, metrics_in
from statewise.tasks.stored import write_examples
from statewise.tasks.tagging import TaggingJob, TaggingRun
from statewise.tasks.translation import TranslationJob, TranslationRun
from statewise.tasks.tree import TreeJob, TreeRun
from statewise.training import History, Outcome, find_published, pick_device, read_history


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


def build_examples(
    recipe: str,
    data: Sequence[str | Path],
    out: str | Path,
    *,
    settings: Sequence[str] = (),
    progress: Progress | None = None,
    shard_bytes: int = SHARD_BYTES,
) -> ExampleIndex:
    """Write what a recipe would learn from to a folder of shards, which `train` takes as its data.

    Neither the examples nor their ids need fit into memory; the weights are those of training on the files themselves.
    A finished folder is left as it is.
    """
    base, source = load_recipe(recipe), f"recipe {recipe}"
    spec = make_spec(base, settings, data=list(map(str, data)), source=source)
    job = TASKS[spec.task].job
    return write_examples(
        spec, make_spec(base, source=source), job, Path(out), progress=progress, shard_bytes=shard_bytes
    )


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
