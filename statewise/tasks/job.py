"""A task bound to its data: all that training, and the folder after it, have to know."""

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from statewise.data import ExampleWriter
from statewise.models import measured, num_parameters, row_bytes
from statewise.specs import AnyRunSpec, UserError
from statewise.tasks.folder import refuse_other_data, refuse_other_size
from statewise.tasks.report import worse_than_trivial
from statewise.training import Better, Parallel, Payload, Window

Progress = Callable[[str, int, int], None]


_ROWS_ASKED = 512  # that a mean over rows is taken of


def some_rows(count: int) -> NDArray[np.int64]:
    """Evenly spaced: enough for a mean."""
    return np.unique(np.linspace(0, count - 1, min(count, _ROWS_ASKED)).round().astype(np.int64))


class Opening(NamedTuple):
    """What a job is opened with besides its spec."""

    folder: Path  # of the run; it need not exist yet
    par: Parallel
    kept: Path | None = None  # a verified checkpoint that goes on: vocabularies are read from there
    progress: Progress | None = None  # hears what is read, how much is done, and of how much


class Trivial(NamedTuple):
    """A predictor that learned nothing but frequencies, and what it reaches on the validation data."""

    name: str
    metric: str
    value: float


class Job(ABC):
    """`spec` is the one that will be kept: what came through standard input has become a file in it."""

    question: ClassVar[tuple[str, ...]]  # settings of the data that decide what is asked: compared runs share them
    tokens: ClassVar[tuple[str, ...]] = ()  # settings of the data that decide what a token is

    spec: AnyRunSpec
    sha256: str  # of the data, for `of_checkpoint`

    @classmethod
    @abstractmethod
    def open(cls, spec: Any, opening: Opening) -> "Job":
        """Read the data of a spec of this task."""

    @classmethod
    def store(cls, spec: Any, writer: ExampleWriter) -> None:
        """Write the examples of a spec of this task to disk, to be trained on as the files are."""
        raise UserError(
            f"data of the task {spec.task} are not kept on disk: they are read into memory", fix="train on the files"
        )

    def of_checkpoint(self, kept: Path | None) -> Self:
        """Itself. A checkpoint that goes on must be of the same data, and of weights of the same shapes."""
        if kept is not None:
            refuse_other_data(kept, self.sha256)
            refuse_other_size(self.build, kept)
        return self

    @property
    @abstractmethod
    def judges(self) -> Mapping[str, Better]:
        """The validation figures that can decide which weights are best; the first one does by default."""

    @abstractmethod
    def build(self) -> nn.Module:
        """The model before training: a function of the spec and of what was learnt from the data."""

    def for_spec(self, spec: AnyRunSpec) -> Self:
        """The same data under another model, to be built or to ask what it costs. Windows stay those of this job."""
        made = copy.copy(self)
        made.spec = spec
        return made

    def num_parameters(self) -> int:
        """Of a model that is built without memory. Sizes that do not fit are refused."""
        return num_parameters(self.build)

    @abstractmethod
    def flops_per_token(self) -> float:
        """Forward, for each token that `window` counts: the mean over what is learned from."""

    def state_bytes(self, context: int) -> int | None:
        """What one row remembers after `context` tokens; None where nothing is read along time."""
        return measured(self.build, lambda model: row_bytes(model, context))

    @abstractmethod
    def identity(self) -> dict[str, Payload]:
        """The files that weights need besides themselves: vocabularies, labels, checksums."""

    @abstractmethod
    def headline(self) -> str:
        """One line: what learns from what."""

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """What the data were, for `environment.json`."""

    def trivial(self) -> Trivial | None:
        """What any trained model should beat; None where nothing is known."""
        return None

    def warning(self, name: str, evaluation: Mapping[str, float]) -> str:
        """That the evaluation of the model of this name is not finite, or worse than a trivial one; else nothing."""
        for metric, value in evaluation.items():
            if not math.isfinite(value):
                return f"the validation {metric.replace('_', ' ')} is not finite; try a smaller train.lr"
        trivial = self.trivial()
        if trivial is None or trivial.metric not in evaluation:
            return ""
        own, known = evaluation[trivial.metric], {trivial.name: trivial.value}
        return worse_than_trivial(name, trivial.metric, own, known, label=f"validation {trivial.metric}")

    @property
    def regular(self) -> bool:
        """Whether each loss reads every part of the model equally often: not where it may read its own outputs."""
        return True

    def begin(self, model: Any, rows: int) -> Any:
        """The initial state; empty for jobs that read whole sequences."""
        return ()

    @abstractmethod
    def window(self, step: int) -> Window:
        """The window of step `step` (from 0): a pure function."""

    @abstractmethod
    def loss(self, model: Any, window: Window, some: slice, times: slice, state: Any) -> tuple[Tensor, Any]:
        """The summed loss over some rows and times, and the state after them."""

    @abstractmethod
    def evaluate(self, model: Any, poll: Callable[[], None]) -> dict[str, float]:
        """Validation figures. `poll` raises when the run should end."""
