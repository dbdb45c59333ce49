"""Forecasting as data: series of real values (or bits), continued by any model of the lineage."""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from statewise.specs.base import Paths, Spec
from statewise.specs.mixer import LSTMSpec
from statewise.specs.model import MixerSpec
from statewise.specs.objective import RealObjectiveSpec, SquaredSpec
from statewise.specs.run import ReaderSpec, RunSpec
from statewise.specs.train import ForcingSpec, TeacherForcing


def _word(value: Any) -> Any:
    return "none" if value is None else value


# `--set path=none` takes a setting back; where "none" is itself a choice, both mean the same.
_NONE = BeforeValidator(_word)


class SeriesDataSpec(Spec):
    layout_of_files: ClassVar[tuple[str, ...]] = (
        "time",
        "id",
        "header",
        "layout",
        "unsorted",
        "repeated",
        "irregular",
        "decimal",
    )

    train: Paths = Field((), description="files of series; empty: the embedded generator `series`")
    validation: Paths = Field((), description="files of whole series held out; empty: `split`")
    test: Paths = Field((), description="files of whole series for the final metrics; empty: `split`")
    series: Literal["seasonal", "mackey_glass", "lorenz", "noisy_sine", "switching"] = Field(
        "seasonal", description="which generator, where no file is named"
    )
    length: int = Field(4000, ge=8, description="time steps of the generator")
    time: str | None = Field(
        None, description="time column; default: one with a usual name or dates; none: rows are the time"
    )
    targets: Paths = Field((), description="columns to forecast; default: all that are not named for something")
    covariates: Paths = Field((), description="columns that are known beforehand, also for the future")
    id: str | None = Field(None, description="column that tells several series apart")
    header: Literal["yes", "no"] = Field("yes", description="no: the first line of a table is values, not names")
    layout: Literal["columns", "rows"] = Field(
        "columns", description="rows: a line is a series, its name first and its values after it (as in M4)"
    )
    split: str = Field(
        "auto",
        description="8640/2880/2880 rows, shares 0.7/0.1/0.2, the last rows of each series last:48/48, filed, "
        "or whole:200/20/20 series",
    )
    scaling: Annotated[Literal["standard", "pooled", "none"], _NONE] = Field(
        "standard",
        description="by mean and deviation of the training part, of each series by itself; pooled: of all together",
    )
    time_features: Paths = Field((), description="t, minute, hour, weekday, day, month, as inputs")
    channels: Literal["joint", "shared"] = Field(
        "joint", description="shared: every channel is a row of its own, and one model serves all"
    )
    missing: Literal["keep", "forward", "refuse"] = Field("keep", description="keep: masked, and marked in the input")
    unsorted: Literal["refuse", "sort"] = Field("refuse", description="rows that are not in the order of their times")
    repeated: Literal["refuse", "first", "last"] = Field(
        "refuse", description="which row holds where two have the same time, as where a clock is set back"
    )
    irregular: Literal["refuse", "keep", "fill"] = Field(
        "refuse", description="times that are not equally far apart; fill: insert missing rows"
    )
    decimal: Literal["auto", ".", ","] = Field(
        "auto", description="decimal mark; auto: a comma where it can be nothing else"
    )
    period: int | None = Field(
        None, ge=1, description="time steps of a season; default: guessed from the training part"
    )


class ForecastSpec(Spec):
    context: int | Literal["all"] = Field(
        96, description="time steps that are read; all: each series from its beginning"
    )
    horizon: int = Field(24, ge=1, description="time steps that are forecast")
    mode: Literal["direct", "recursive"] = Field(
        "direct", description="direct: all of the horizon at once; recursive: one time step, fed back"
    )
    anchor: Annotated[Literal["none", "last"], _NONE] = Field(
        "none", description="last: forecasts are changes from the last value"
    )
    skip: bool = Field(False, description="direct: a linear map from the context is added to the forecast")
    forcing: ForcingSpec = Field(TeacherForcing(), description="recursive: what is read in training")
    paths: int = Field(100, ge=2, description="recursive: sampled futures that intervals are taken from")
    stride: int = Field(1, ge=1, description="rows between the origins of an evaluation")

    @model_validator(mode="after")
    def _sensible(self) -> Self:
        if isinstance(self.context, int) and self.context < 1:
            raise ValueError(f"context = {self.context} reads nothing; give 1 or more, or all")
        if self.mode == "direct":
            if self.context == "all":
                raise ValueError("context = all needs mode = recursive: rows of unequal length have no common horizon")
            if not isinstance(self.forcing, TeacherForcing):
                raise ValueError("forcing has no meaning with mode = direct, which feeds nothing back; leave it out")
        elif self.skip:
            raise ValueError("skip has no meaning with mode = recursive; leave it out")
        return self


class ForecastingSpec(RunSpec):
    file_settings: ClassVar[tuple[str, ...]] = ("train", "validation", "test")
    tested: ClassVar[bool] = True

    task: Literal["forecasting"] = "forecasting"
    data: SeriesDataSpec = SeriesDataSpec()
    model: MixerSpec = LSTMSpec()
    reader: ReaderSpec = ReaderSpec()
    forecast: ForecastSpec = ForecastSpec()
    objective: RealObjectiveSpec = SquaredSpec()

    @property
    def loss_name(self) -> str:
        return self.objective.loss

    @model_validator(mode="after")
    def _no_settings_without_meaning(self) -> Self:
        for name in ("tie", "embedding_dropout", "embedding_scale"):
            if getattr(self.model, name):
                raise ValueError(f"model.{name} has no meaning here: values are no tokens")
        if self.forecast.mode == "recursive" and self.reader != ReaderSpec():
            raise ValueError(
                "reader has no meaning with forecast.mode = recursive, which reads along time; leave it out"
            )
        if self.objective.of_bits:
            if self.forecast.context != "all":
                raise ValueError(
                    "objective.kind = bernoulli needs forecast.mode = recursive and forecast.context = all: "
                    "one time step after the other, from the beginning"
                )
            if self.data.scaling != "none" or self.forecast.anchor != "none" or self.data.channels != "joint":
                raise ValueError(
                    "objective.kind = bernoulli needs data.scaling = none, data.channels = joint and "
                    "forecast.anchor = none: bits are 0 or 1"
                )
        if self.forecast.context == "all" and self.data.channels == "shared":
            raise ValueError("forecast.context = all needs data.channels = joint")
        return self
