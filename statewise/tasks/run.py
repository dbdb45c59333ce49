"""A trained folder, opened: the one noun of the command line, as a Python object."""

import html
import tomllib
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from statewise.decoding import Sampling
from statewise.models import CustomMixer
from statewise.specs import AnyRunSpec, OwnMixer, UserError, parse_spec
from statewise.specs.custom import custom_tables
from statewise.tasks.report import Evaluation
from statewise.tasks.specimen import Specimens
from statewise.training.checkpoint import vouched_for
from statewise.training.folder import load_weights, model_tensors
from statewise.training.forcing import ExposureGap

NEEDS = ("run.toml", "model.safetensors")
M = TypeVar("M", bound=nn.Module)


class Run(ABC):
    """`run = statewise.load("runs/lstm")`, then `run.evaluate()`, and `run.generate(...)` or `run.predict(...)`."""

    path: Path
    spec: AnyRunSpec
    model: nn.Module
    skipped: list[str]  # damaged parts that were passed over
    mixers: tuple[CustomMixer, ...] = ()  # the user's own classes that it was opened with

    @property
    @abstractmethod
    def device(self) -> torch.device: ...

    @abstractmethod
    def sizes(self) -> dict[str, Any]:
        """What says how large it is."""

    @abstractmethod
    def evaluate(self, data: str | Path | Sequence[str] | None = None) -> Evaluation:
        """On `data` (files), or on what was held out of training: figures, their trivial baselines beside them."""

    @property
    def exposure_unit(self) -> str:
        """What `exposure_gap` is measured in."""
        return "nats"

    def exposure_gap(
        self,
        data: str | Path | Sequence[str] | None = None,
        *,
        rows: int = 128,
        choice: Literal["sample", "best"] = "sample",
        seed: int = 0,
    ) -> ExposureGap:
        """What it costs, position by position, to have read its own output instead of the truth."""
        raise UserError(
            f"a {self.spec.task} run reads nothing that it wrote, so there is no exposure gap",
            fix="language models, translations and recursive forecasts have one",
        )

    def backtest(self, *, folds: int = 5) -> Sequence[Evaluation]:
        """What was held out in `folds` stretches of time, each evaluated: is it as good later as earlier?"""
        raise UserError(f"a {self.spec.task} run has no stretches of time", fix="forecasts of series have them")

    def stationarity(self) -> Evaluation:
        """Whether the law behind its data changes with time."""
        raise UserError(f"a {self.spec.task} run has no time that could matter", fix="forecasts of series have one")

    def plot(self, path: str | Path, *, what: Literal["forecast", "error"] = "forecast") -> Path:
        """A picture of what the run does, by the ending of `path`."""
        raise UserError(
            f"a {self.spec.task} run has no forecast to draw", fix=f"statewise inspect {self.path} draws other pictures"
        )

    def specimens(self, data: str | Path | Sequence[str] | None = None, *, text: str | None = None) -> Specimens | None:
        """Rows of `data` (files), or lines of a `text`, or what was held out, as lenses look at them.

        None: this task reads one long text, and lenses have other ways to look at it.
        """
        return None

    def with_settings(self, settings: Sequence[str]) -> "Run":
        """The same with other settings, `path=value`, of those that need no training: how it searches, for example."""
        if settings:
            raise UserError(f"{settings[0]!r}: a {self.spec.task} run has no setting to change after training")
        return self

    def predict(self, data: str | Path | Sequence[str]) -> Iterator[dict[str, Any]]:
        """What the model says of each row of `data`, in order: one JSON object a row."""
        self._cannot("predict")

    def predict_lines(self, data: str | Path | Sequence[str]) -> Iterator[str]:
        """The same in the format of `data` itself, line by line."""
        self._cannot("predict")

    def interpolate(self, data: str | Path | Sequence[str]) -> Iterator[dict[str, Any]]:
        """What the model puts in the place of every missing value of `data`: one JSON object each."""
        raise UserError(f"a {self.spec.task} run fills no holes", fix="forecasts of series do")

    @abstractmethod
    def generate(
        self,
        prompt: str = "",
        *,
        tokens: int | None = None,
        sampling: Sampling | None = None,
        stop: Sequence[str] = (),
    ) -> str:
        """What the model writes after a prompt, until `tokens`, its own end, or a stop string.

        What writes nothing, and so has nothing to draw, answers the prompt as `predict` would.
        """

    def _cannot(self, what: str) -> NoReturn:
        raise UserError(f"a {self.spec.task} run does not {what}", fix="it can evaluate and generate")

    def _asked(self, prompt: str) -> str:
        """The prompt of a run that cannot begin from nothing."""
        if not prompt.strip():
            raise UserError(
                f"a {self.spec.task} run answers a prompt, and there is none", fix="give one: --prompt TEXT"
            )
        return prompt

    def __repr__(self) -> str:
        sizes = "".join(f", {name} {size}" for name, size in self.sizes().items())
        return f"Run({str(self.path)!r}: {self.spec.name}{sizes})"

    def _repr_html_(self) -> str:
        parameters = sum(p.numel() for p in self.model.parameters())
        cells = {"run": self.path, "model": self.spec.name, **self.sizes(), "parameters": parameters}
        head = "".join(f"<th>{html.escape(str(name))}</th>" for name in cells)
        body = "".join(f"<td>{html.escape(str(value))}</td>" for value in cells.values())
        return f"<table><tr>{head}</tr><tr>{body}</tr></table>"


class Opened(NamedTuple):
    """A verified folder that a run is opened from."""

    path: Path  # as it was named
    verified: Path  # itself, or a checkpoint in it
    skipped: list[str]
    device: torch.device

    @property
    def weights(self) -> Path:
        averaged = vouched_for(self.verified, "average.safetensors")
        return self.verified / ("average.safetensors" if averaged else "model.safetensors")

    def text(self, name: str) -> str:
        """A text file of the folder."""
        try:
            return (self.verified / name).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise UserError(f"{str(self.verified / name)!r} cannot be read: {error}") from None

    def model(self, build: Callable[[], M]) -> M:
        """`build`'s model with the folder's weights. Before memory is taken, the file must fit what run.toml says."""
        refuse_other_size(build, self.verified)
        model = build()
        load_weights(model, self.weights)
        return model.to(self.device).eval()


def read_spec(folder: Path, *, mixers: Sequence[OwnMixer] = ()) -> AnyRunSpec:
    """What `run.toml` says. A run with a user's class needs that class: a run folder never brings code with it."""
    path = folder / "run.toml"
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # ValueError: not TOML, not UTF-8, or a number without end
        raise UserError(f"{str(path)!r} is not valid TOML: {error}") from None
    recorded = {one.get("mixer"): one.get("sha256") for one in custom_tables(table)}
    spec = parse_spec(table, source=str(folder if recorded else path), mixers=mixers)
    for own in mixers:
        if own.sha256 and recorded.get(own.name, own.sha256) not in ("", own.sha256):
            warnings.warn(f"the source of {own.name} has changed since the run was trained", stacklevel=2)
    weights = folder / "model.safetensors"
    if weights.is_file():  # not yet, where a kill came between the two
        _refuse_other_depth(spec, weights)
    return spec


def _refuse_other_depth(spec: AnyRunSpec, weights: Path) -> None:
    """Building very many layers would itself take memory, whatever their size."""
    size = weights.stat().st_size
    for name, count in _counts(spec.model_dump()):
        if name == "depth" and count > size:
            raise UserError(
                f"{str(weights.parent)!r}: run.toml describes {count:,} layers, the file has {size:,} bytes"
            )


def _counts(table: dict[str, Any]) -> Iterator[tuple[str, int]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _counts(value)
        elif isinstance(value, int):
            yield name, value


def refuse_other_size(build: Callable[[], nn.Module], folder: Path) -> None:
    """A model without memory has the shapes of the real one: the weights file must hold exactly these."""
    with torch.device("meta"):
        described = {name: list(value.shape) for name, value in model_tensors(build()).items()}
    try:
        with safe_open(folder / "model.safetensors", framework="pt") as file:
            held = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (SafetensorError, OSError, ValueError) as error:
        raise UserError(f"{str(folder / 'model.safetensors')!r} cannot be read: {error}") from None
    if described != held:
        name = next(name for name in {**described, **held} if described.get(name) != held.get(name))
        raise UserError(
            f"{str(folder)!r}: run.toml describes a model with {name} of shape {described.get(name, 'none')}, "
            f"model.safetensors holds {held.get(name, 'none')}"
        )
