"""Tagging as data: sentences with a tag on every word, read by any model of the lineage."""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from statewise.specs.base import Spec
from statewise.specs.model import MixerSpec
from statewise.specs.objective import CategoricalSpec, CRFSpec
from statewise.specs.paths import Paths
from statewise.specs.reader import ReaderSpec
from statewise.specs.recurrent import LSTMSpec
from statewise.specs.run import RunSpec
from statewise.specs.words import WordsSpec


class TaggedDataSpec(Spec):
    layout_of_files: ClassVar[tuple[str, ...]] = ("format", "word", "tag", "comment", "encoding")

    train: Paths = Field((), description="files of tagged sentences; empty: tokens of the standard library's source")
    validation: Paths = Field((), description="files held out; empty: a share of `train`")
    held_out: float = Field(0.1, gt=0, lt=1, description="share of `train` held out when `validation` is empty")
    format: Literal["auto", "conllu", "columns"] = Field("auto", description="auto: by the file's ending")
    word: str | int | None = Field(None, description="column of the words; default: form, or the first")
    tag: str | int | None = Field(None, description="column of the tags; default: upos, or the last")
    comment: str | None = Field(None, min_length=1, description="how a comment begins, in a file of columns")
    encoding: str = Field("utf-8", description="of the files, such as latin-1 or utf-16")
    scheme: Literal["as-is", "iob2"] = Field(
        "as-is", description="iob2: spans begin with B-, continue with I-, whatever the file has"
    )
    longest: int = Field(512, ge=1, description="words read at once; a longer sentence is read in parts, none is lost")


def _default_kind(value: Any) -> Any:
    return {"kind": "categorical", **value} if isinstance(value, dict) else value


TagObjectiveSpec = Annotated[
    Annotated[CategoricalSpec | CRFSpec, Field(discriminator="kind")], BeforeValidator(_default_kind)
]


class TaggingSpec(RunSpec):
    main_data: ClassVar[str] = "data.train"

    task: Literal["tagging"] = "tagging"
    data: TaggedDataSpec = TaggedDataSpec()
    words: WordsSpec = WordsSpec()
    model: MixerSpec = LSTMSpec()
    reader: ReaderSpec = ReaderSpec()
    objective: TagObjectiveSpec = CategoricalSpec()

    @property
    def name(self) -> str:
        return f"{self.model.known_as}-tagging"

    @model_validator(mode="after")
    def _no_settings_without_meaning(self) -> Self:
        if self.reader.summary != ReaderSpec().summary:
            raise ValueError(
                "reader.summary has no meaning here: every word gets a tag, not all together; leave it out"
            )
        if self.model.tie:
            raise ValueError("model.tie has no meaning here: tags are not words; leave it out")
        return self
