"""A run folder, opened: what the command line works on, as a Python object."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Self, TypeVar

import torch
from torch import nn

from statewise.core import Machine
from statewise.data import Data, as_temporary_file, file_names
from statewise.decoding import Sampling
from statewise.figures import Table, html
from statewise.models import CustomMixer
from statewise.specs import AnyRunSpec, UserError, make_spec, mixers_of, option
from statewise.tasks.answers import Answers
from statewise.tasks.folder import Opened
from statewise.tasks.metric import Metric, metric_of
from statewise.tasks.portable import Portable
from statewise.tasks.report import Evaluation, StationarityTest
from statewise.tasks.specimen import Specimens
from statewise.training import ExposureGap, History, read_history

R = TypeVar("R", bound="Run")
_PLACE = ("file", "line")


class Generation(NamedTuple):
    """What a run writes after a prompt, for somebody who watches."""

    pieces: Iterator[str]  # as they are shown, one behind the other
    facts: Callable[[], dict[str, Any]]  # after the last piece: the prompt, the text, and what else is known of it
    unknown: Sequence[str] = ()  # parts of the prompt that are not in the run's vocabulary


class Run(ABC):
    """A trained run, opened by `load`. It evaluates and generates; each task's own class adds what else it can do.

    `path`, `spec` (the settings of run.toml), `model` (a PyTorch module) and `history` are attributes of every run.

    >>> run = sw.load("runs/lstm")
    >>> run
    Run('runs/lstm': lstm, width 8, depth 1, vocabulary 17)
    >>> run.spec.task
    'language_model'
    """

    _evaluation: ClassVar[type[Any]]  # what `evaluate` returns
    _changeable: ClassVar[Mapping[str, tuple[str, ...]]] = {}  # settings by their table that need no training

    path: Path
    spec: AnyRunSpec
    model: nn.Module
    skipped: list[str]  # damaged parts that were left out
    mixers: tuple[CustomMixer, ...]  # the user's own classes that it was opened with

    def __init__(self, spec: Any, opened: Opened) -> None:
        self.path, self.spec, self.skipped, self._device = opened.path, spec, list(opened.skipped), opened.device
        self.model = self._open(opened).eval()

    @abstractmethod
    def _open(self, opened: Opened) -> Any:
        """Read the folder; returns the model, with its weights."""

    @property
    def device(self) -> torch.device:
        """Where the model is.

        >>> sw.load("runs/lstm", device="cpu").device
        device(type='cpu')
        """
        return self._device

    @abstractmethod
    def sizes(self) -> dict[str, Any]:
        """The sizes of the model and of its vocabulary or classes, by name.

        >>> sw.load("runs/lstm").sizes()["width"]
        8
        """

    @property
    def history(self) -> History:
        """The metrics of every recorded training step, as a table: `run.history["loss"]`.

        >>> history = sw.load("runs/lstm").history
        >>> len(history["loss"]) == len(history)
        True
        """
        return read_history(self.path, unit=self.spec.loss_name)

    @abstractmethod
    def evaluate(self, data: Data | None = None) -> Evaluation:
        """Measure the model on `data` (files, or rows in memory), or on what was held out of training.

        Returns a NamedTuple of metrics; it prints them beside those of trivial baselines.

        >>> evaluation = sw.load("runs/classification").evaluate()
        >>> 0 <= evaluation.accuracy <= 1
        True
        """

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The metrics that `evaluate` returns: of each its name, its label, and which direction is better.

        >>> [(metric.name, metric.better) for metric in sw.load("runs/classification").metrics][:2]
        [('accuracy', 'higher'), ('macro_f1', 'higher')]
        """
        return metrics_in(self._evaluation)

    @property
    def machine(self) -> Machine[Any] | None:
        """What reads step by step and carries a state; None for a model that reads all of its input at once.

        >>> run = sw.load("runs/lstm")
        >>> run.machine is run.model
        True
        """
        return self.model if isinstance(self.model, Machine) else None

    def answers(self) -> Answers:
        """Answers to the first held-out rows, for a report that compares models.

        >>> row = sw.load("runs/classification").answers().rows[0]
        >>> row.truth in ("good", "bad"), row.right == (row.answer == row.truth)
        (True, True)
        """
        return Answers()

    def decode_speed(self) -> float | None:
        """Tokens a second at which it generates one text; None for a model that does not generate.

        >>> sw.load("runs/lstm").decode_speed() > 0
        True
        """
        return None

    @abstractmethod
    def specimens(self, data: Data | None = None, *, text: str | None = None) -> Specimens:
        """Rows for `sw.inspect` to look at: of `data`, lines of a `text`, or what was held out.

        >>> sw.load("runs/classification").specimens().source
        'the held-out rows'
        """

    def portable(self) -> Portable:
        """What `statewise export` makes graphs of; refused by runs that have no such form.

        >>> sorted(sw.load("runs/lstm").portable().files)
        ['tokenizer.json']
        """
        raise UserError(
            f"a {self.spec.task} run cannot be exported",
            fix="all but grids and translation by one model can be",
        )

    def with_settings(self, settings: Sequence[str]) -> Self:
        """The same run with other settings, each `path=value`, of those that need no training: how files are laid out
        (the column of the text, for example), or how a translation is searched for.

        >>> run = sw.load("runs/translation").with_settings(["decoding.beam=2"])
        >>> run.spec.decoding.beam
        2
        """
        if not settings:
            return self
        table = self.spec.model_dump(mode="json")
        asked = make_spec(table, settings, source=f"{self.path}/run.toml", mixers=mixers_of(self.spec))
        free = {"data": self.spec.data.layout_of_files, **self._changeable}
        changed: dict[str, Any] = {}
        for group, names in free.items():
            old, new = getattr(self.spec, group), getattr(asked, group, None)
            changed[group] = old.model_copy(update={name: getattr(new, name) for name in names})
        kept = self.spec.model_copy(update=changed)
        if kept != asked:
            known = [f"{group}.{name}" for group, names in free.items() for name in names]
            raise UserError(
                f"{', '.join(settings)}: after training, this cannot be changed",
                fix=f"train again to change it; what can be changed: {', '.join(known) or 'nothing'}",
            )
        made = copy.copy(self)
        made.spec = kept
        return made

    def generate(
        self, prompt: str = "", *, tokens: int | None = None, sampling: Sampling | None = None, stop: Sequence[str] = ()
    ) -> str:
        """What the model writes after a prompt, until `tokens`, its own end, or a stop string.

        A model that writes nothing (a classifier, a tagger) answers the prompt as `predict` would.

        >>> sw.load("runs/classification").generate("a warm film") in ("good", "bad")
        True
        """
        return self._generate(prompt, tokens, sampling or Sampling(), stop)

    def generation(
        self,
        prompt: str = "",
        *,
        tokens: int | None = None,
        sampling: Sampling | None = None,
        stop: Sequence[str] = (),
        state: Path | None = None,
        save_state: Path | None = None,
    ) -> Generation:
        """`generate` piece by piece. A run with a state goes on from the file `state`, and saves into `save_state`.

        >>> generation = sw.load("runs/classification").generation("a warm film")
        >>> "".join(generation.pieces) == generation.facts()["text"]
        True
        """
        if state or save_state:
            raise UserError(
                f"a {self.spec.task} run has no text to continue later",
                fix=f"leave out {option('state')} and {option('save_state')}",
            )
        text = self.generate(prompt, tokens=tokens, sampling=sampling, stop=stop)
        return Generation(iter([text]), lambda: {"prompt": prompt, "text": text})

    @abstractmethod
    def _generate(self, prompt: str, tokens: int | None, sampling: Sampling, stop: Sequence[str]) -> str: ...

    def lab(self, *, view: str = "", height: int = 760, exact: bool = False) -> Any:
        """This model, live, under a notebook's cell: `sw.lab.show` of this run.

        >>> sw.load("runs/lstm").lab()
        Lab(lstm)
        """
        return import_module("statewise.lab").show(self, view=view, height=height, exact=exact)

    def _asked(self, prompt: str) -> str:
        """The prompt of a run that cannot begin from nothing."""
        if not prompt.strip():
            raise UserError(f"a {self.spec.task} run needs a prompt", fix=f"give one: {option('prompt', 'TEXT')}")
        return prompt

    def able(self, kind: type[R], *, lacks: str, fix: str) -> R:
        """This run as one of a kind that can do more; refused where it is of another kind.

        >>> from statewise.tasks import PredictingRun
        >>> run = sw.load("runs/classification")
        >>> run.able(PredictingRun, lacks="predicts no rows", fix="generate") is run
        True
        """
        if isinstance(self, kind):
            return self
        raise UserError(f"a {self.spec.task} run {lacks}", fix=fix)

    def __repr__(self) -> str:
        sizes = "".join(f", {name} {size}" for name, size in self.sizes().items())
        return f"Run({str(self.path)!r}: {self.spec.name}{sizes})"

    def _repr_html_(self) -> str:
        parameters = sum(p.numel() for p in self.model.parameters())
        cells = {"run": self.path, "model": self.spec.name, **self.sizes(), "parameters": f"{parameters:,}"}
        table = Table.of_texts(list(cells), [[str(value) for value in cells.values()]], words=2)
        return f"{html.table(table)}{self.history.curve_html()}"


class PredictingRun(Run):
    """A run that labels, tags, translates or continues each row of its input."""

    def predict(self, data: Data) -> Any:
        """The model's answers, all at once: a list for a list, one answer for one item.

        An answer is a label, the tags of a sentence, a translation, a tree with its labels, or what comes next in a
        series. For a file, it is the list of the dictionaries of `predict_rows`.

        >>> run = sw.load("runs/classification")
        >>> [label in ("good", "bad") for label in run.predict(["good good", "bad"])]
        [True, True]
        """
        if file_names(data) is not None:
            return list(self.predict_rows(data))
        alone = self._is_one(data)
        answers = [self._answer(row) for row in self._rows_held([data] if alone else data)]
        return answers[0] if alone else answers

    def predict_rows(self, data: Data) -> Iterator[dict[str, Any]]:
        """Each answer as a dictionary with its probabilities or scores, and its place: `file` and `line`, or `row`.

        A file is read and answered bit by bit; data in memory at once.

        >>> row = next(sw.load("runs/classification").predict_rows("rows.tsv"))
        >>> row["line"], row["label"] in ("good", "bad")
        (2, True)
        """
        paths = file_names(data)
        if paths is not None:
            return self._rows(paths, self.spec.data)
        return iter(self._rows_held([data] if self._is_one(data) else data))

    def predict_values(self, values: Sequence[Any]) -> list[dict[str, Any]]:
        """`predict_rows` of values that may come from anybody: a text that looks like a path is only a text.

        >>> rows = sw.load("runs/classification").predict_values(["rows.tsv"])
        >>> rows[0]["label"] in ("good", "bad")
        True
        """
        return self._rows_held(values)

    @abstractmethod
    def predict_lines(self, data: str | Path | Sequence[str | Path]) -> Iterator[str]:
        """The answers as lines of text, in the format of the files that `data` names where they have one.

        >>> next(sw.load("runs/classification").predict_lines("rows.tsv")) in ("good", "bad")
        True
        """

    @abstractmethod
    def _rows(self, paths: Sequence[str], data: Any) -> Iterator[dict[str, Any]]:
        """The rows of files that are read by the settings `data`."""

    def _rows_held(self, data: Data) -> list[dict[str, Any]]:
        with as_temporary_file(self.spec, data, labelled=False) as file:
            rows = list(self._rows(file.paths, file.data))
        return [{"row": at, **{k: v for k, v in row.items() if k not in _PLACE}} for at, row in enumerate(rows)]

    def _answer(self, row: Mapping[str, Any]) -> Any:
        """The answer alone, of one of `predict_rows`."""
        raise NotImplementedError

    def _is_one(self, data: Data) -> bool:
        """Whether `data` is a single item, and not a list of them."""
        return isinstance(data, str)


class SelfReadingRun(Run):
    """A run whose model reads its own output when it generates."""

    @abstractmethod
    def exposure_gap(
        self, data: Data | None = None, *, rows: int = 128, choice: Literal["sample", "best"] = "sample", seed: int = 0
    ) -> ExposureGap:
        """How much the loss rises, position by position, when the model reads its own output instead of the truth.

        Measured on at most `rows` rows of `data` (default: what was held out); the unit is `run.spec.loss_name`.

        >>> gap = sw.load("runs/translation").exposure_gap(rows=4)
        >>> len(gap.gap_T) == len(gap.count_T)
        True
        """


class OrderedRun(Run):
    """A run whose data have an order in time."""

    @abstractmethod
    def stationarity(self, data: Data | None = None) -> StationarityTest:
        """Whether what the model learns changes with time.

        >>> run = sw.load("runs/lstm")
        >>> run.stationarity("text.txt", block=16).words.subject
        'the text'
        """


def metrics_in(evaluation: type[Any]) -> tuple[Metric, ...]:
    """The fields of an evaluation that are a number, or None where it does not apply."""
    fields = evaluation.__annotations__.items()
    return tuple(metric_of(name) for name, kind in fields if kind in (float, float | None))


def named(data: str | Path | Sequence[str | Path]) -> list[str]:
    """Names of files, one or several."""
    return [str(data)] if isinstance(data, str | Path) else [str(path) for path in data]
