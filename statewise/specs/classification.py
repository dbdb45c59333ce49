"""Classification as data: rows that each have a label, read by any model of the lineage, or grids by their own."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from statewise.specs.base import Paths, Spec, default_kind
from statewise.specs.language_model import TOKENIZER_HELP
from statewise.specs.mixer import LSTMSpec
from statewise.specs.model import AnyMixerSpec, GridSpec
from statewise.specs.objective import CategoricalSpec
from statewise.specs.run import ReaderSpec, RunSpec

SHORTEST_PASSAGE = 8  # words from what is to be remembered to the answer
_AROUND = {"recall": 10, "passages": 4}  # most words of a row besides `distance`


class LabelledDataSpec(Spec):
    layout_of_files: ClassVar[tuple[str, ...]] = (
        *Spec.layout_of_table,
        "text",
        "label",
        "values",
        "empty",
    )

    train: Paths = Field(
        (),
        description="files, a folder of <label>.txt or of a folder per label, or hub:NAME:SPLIT; empty: embedded data",
    )
    embedded: Literal["docstrings", "recall", "passages"] = Field(
        "docstrings",
        description="which texts, when `train` is empty; recall: keys with values, then one is asked; "
        "passages: where one grew up, other sentences, then one's language is asked",
    )
    distance: int = Field(
        16,
        ge=0,
        le=65_536,
        description="recall: what is passed over before the question; passages: words up to the answer",
    )
    longer: int = Field(
        1, ge=1, le=1000, description="recall: held-out rows have this many times the longest distance of training"
    )
    validation: Paths = Field((), description="files held out; empty: a share of `train`, of each label alike")
    held_out: float = Field(0.1, gt=0, lt=1, description="share of `train` held out when `validation` is empty")
    kind: Literal["text", "values", "grid", "vector"] = Field(
        "text",
        description="what a row holds: a text, a sequence of numbers, a grid of them, or a vector, which is one time "
        "step (one to one)",
    )
    format: Literal["auto", "csv", "tsv", "quoted-tsv", "jsonl", "label-first", "folder"] = Field(
        "auto", description="auto: by the file's ending"
    )
    header: Literal["auto", "yes", "no"] = Field("auto", description="auto: where a column is named")
    delimiter: str | None = Field(None, min_length=1, description="between columns; default: a comma or a tab")
    encoding: str = Field("utf-8", description="of the files, such as latin-1 or utf-16")
    text: str | int = Field("text", description="column of the text, by name or by number from 0")
    label: str | int = Field("label", description="column of the label (of an .npz: the array)")
    values: str = Field("x", description="of an .npz: the array of the sequences or grids")
    empty: Literal["refuse", "skip", "keep"] = Field("refuse", description="labelled rows without text")
    leave_out: tuple[str, ...] = Field((), description="labels of texts whose rows are left out, such as unsup")
    tokenizer: str = Field("word", min_length=1, description=TOKENIZER_HELP)
    vocab: int | None = Field(None, ge=2, description="largest vocabulary; default: that of the tokenizer")
    lower: bool = Field(False, description="read as if all were in lower case")
    min_count: int = Field(1, ge=1, description="rarer words are unknown")
    longest: int = Field(
        400, ge=1, description="tokens of a row that are read; of a longer one the first so many; a grid is read whole"
    )


ClassifierModelSpec = Annotated[Annotated[AnyMixerSpec | GridSpec, Field(discriminator="kind")], default_kind("lstm")]


class ClassificationSpec(RunSpec):
    task: Literal["classification"] = "classification"
    data: LabelledDataSpec = LabelledDataSpec()
    model: ClassifierModelSpec = LSTMSpec()
    reader: ReaderSpec = ReaderSpec()
    objective: CategoricalSpec = CategoricalSpec()

    @property
    def layout(self) -> str:
        return "cells" if self.model.reads_cells else "rows"

    @model_validator(mode="after")
    def _what_has_a_meaning(self) -> Self:
        if isinstance(self.model, GridSpec):
            if self.data.kind != "grid":
                raise ValueError(
                    f"model.kind = 'grid' reads grids, but data.kind is {self.data.kind!r}; set data.kind = 'grid', "
                    "or choose a model that reads sequences"
                )
            if self.reader != ReaderSpec():
                raise ValueError(
                    "reader.* is how a sequence is read; a grid is read from its corners: leave it out, "
                    "or set model.summary"
                )
        around = None if self.data.train else _AROUND.get(self.data.embedded)
        if self.data.longer > 1 and (self.data.train or self.data.embedded != "recall"):
            raise ValueError(f"data.longer = {self.data.longer} is for data.embedded = 'recall'; leave it out")
        furthest = self.data.distance * self.data.longer
        if around is not None and furthest + around > self.data.longest:
            raise ValueError(
                f"a distance of {furthest} puts the question beyond data.longest = {self.data.longest}; "
                f"raise data.longest to {furthest + around}"
            )
        if around is not None and self.data.embedded == "passages" and self.data.distance < SHORTEST_PASSAGE:
            raise ValueError(
                f"data.distance = {self.data.distance} has no room for a passage; give at least {SHORTEST_PASSAGE}"
            )
        if self.data.validation and not self.data.train:
            raise ValueError("data.validation is named, data.train is not: name both")
        return self
