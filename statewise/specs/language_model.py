"""Language modelling as data: a text, any model of the lineage."""

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from statewise.specs.data import DataSpec
from statewise.specs.forcing import ForcingSpec, TeacherForcing
from statewise.specs.model import ModelSpec
from statewise.specs.penalty import PenaltySpec
from statewise.specs.recurrent import LSTMSpec
from statewise.specs.run import RunSpec


class LanguageModelSpec(RunSpec):
    main_data: ClassVar[str] = "data.text"
    file_settings: ClassVar[tuple[str, ...]] = ("text", "validation")
    verb: ClassVar[str] = "generate"
    whole_sequences: ClassVar[bool] = False

    task: Literal["language_model"] = "language_model"
    data: DataSpec = DataSpec()
    model: ModelSpec = LSTMSpec()
    forcing: ForcingSpec = Field(TeacherForcing(), description="teacher, free, or a schedule")
    penalty: PenaltySpec = Field(PenaltySpec(), description="on the features: how large they are, how fast they move")

    @property
    def learns(self) -> Literal["gradient", "counting"]:
        return self.model.learns

    @property
    def step_grows(self) -> bool:
        return self.model.step_grows and self.data.order == "sequential"

    @property
    def name(self) -> str:
        return self.model.known_as

    @model_validator(mode="after")
    def _counting_reads_the_truth(self) -> Self:
        if self.learns == "counting" and not isinstance(self.forcing, TeacherForcing):
            raise ValueError(f"forcing has no meaning here: {self.model.kind} counts the text itself; leave it out")
        return self

    @model_validator(mode="after")
    def _penalty_on_features_of_the_truth(self) -> Self:
        if self.penalty.is_free:
            return self
        if self.learns == "counting":
            raise ValueError(f"penalty has no meaning here: {self.model.kind} has no features; leave it out")
        if not isinstance(self.forcing, TeacherForcing):
            raise ValueError("penalty needs forcing = 'teacher': leave one of the two out")
        return self
