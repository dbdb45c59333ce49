"""Language modelling as data: a text, its tokens, and any model of the lineage."""

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from statewise.specs.base import Paths, Spec
from statewise.specs.mixer import LSTMSpec
from statewise.specs.model import ModelSpec
from statewise.specs.objective import PenaltySpec
from statewise.specs.run import RunSpec
from statewise.specs.train import ForcingSpec, TeacherForcing

# Kinds of tokenizers that are trained on text. To add one: its name here, its training in data/tokenizer_training.py.
TOKENIZERS = ("char", "byte", "word", "wordpunct", "bpe")
TOKENIZER_HELP = f"{', '.join(TOKENIZERS)}, or the path of a tokenizer.json"


class DataSpec(Spec):
    text: Paths = Field((), description="files, folders, hub:NAME:SPLIT or '-' (standard input); empty: embedded text")
    validation: Paths = Field((), description="files held out for evaluation; empty: the last part of `text`")
    held_out: float = Field(0.1, gt=0, lt=1, description="share of `text` held out when `validation` is empty")
    tokenizer: str = Field("char", min_length=1, description=TOKENIZER_HELP)
    vocab: int | None = Field(
        None, ge=2, description="largest vocabulary; default: all characters, 10000 words, 2048 BPE pieces"
    )
    begin: str | None = Field(
        None, min_length=1, description="special token that is read before a text; default: the one that ends texts"
    )
    separator: str | None = Field(
        None, min_length=1, description="text that ends a document inside a file; the state is reset there"
    )
    text_column: str | int = Field(
        "text", description="column of the text in Parquet and Arrow files and datasets, by name or by number from 0"
    )
    direction: Literal["forward", "reverse"] = Field("forward", description="read from the start or from the end")
    order: Literal["sequential", "random", "shuffled"] = Field(
        "sequential",
        description="sequential carries the state from window to window; random (windows anywhere) and shuffled "
        "(each window once an epoch) reset it",
    )
    evaluate_state: Literal["as_trained", "carried", "reset", "both"] = Field(
        "as_trained",
        description="in evaluation: carried along the text, reset at each window, or both, carried first",
    )


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
