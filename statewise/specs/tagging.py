"""Tagging as data: sentences with a tag on every word, read by any model of the lineage."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from statewise.specs.base import Paths, Spec, default_kind
from statewise.specs.mixer import GRUSpec, LSTMSpec
from statewise.specs.model import MixerSpec
from statewise.specs.objective import CategoricalSpec, CRFSpec
from statewise.specs.run import ReaderSpec, RunSpec


class WordsSpec(Spec):
    width: int | None = Field(None, ge=1, description="of a word's own vector; default: model.embedding")
    vocab: int = Field(50_000, ge=3, description="largest vocabulary of words; the most frequent are kept")
    min_count: int = Field(1, ge=1, description="rarer words are unknown")
    lower: bool = Field(True, description="a word's own vector does not know its case; its characters do")
    word_dropout: float = Field(
        0.1, ge=0, lt=1, description="share of words that are unknown in training, so that the unknown vector is learnt"
    )
    characters: int = Field(
        32, ge=0, description="units, in each direction, of what reads a word's characters; 0: nothing does"
    )
    character_kind: Literal["gru", "lstm"] = Field("gru", description="what reads a word's characters")
    character_width: int = Field(32, ge=1, description="of a character's vector")
    longest: int = Field(32, ge=2, description="characters of a word that are read; of a longer one both its ends")

    def speller(self) -> GRUSpec | LSTMSpec:
        """The bidirectional reader of a word's characters."""
        return GRUSpec(width=self.characters) if self.character_kind == "gru" else LSTMSpec(width=self.characters)


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


TagObjectiveSpec = Annotated[
    Annotated[CategoricalSpec | CRFSpec, Field(discriminator="kind")], default_kind("categorical")
]


class TaggingSpec(RunSpec):
    task: Literal["tagging"] = "tagging"
    data: TaggedDataSpec = TaggedDataSpec()
    words: WordsSpec = WordsSpec()
    model: MixerSpec = LSTMSpec()
    reader: ReaderSpec = ReaderSpec()
    objective: TagObjectiveSpec = CategoricalSpec()

    @model_validator(mode="after")
    def _no_settings_without_meaning(self) -> Self:
        if self.reader.summary != ReaderSpec().summary:
            raise ValueError(
                "reader.summary has no meaning here: every word gets a tag, not all together; leave it out"
            )
        if self.model.tie:
            raise ValueError("model.tie has no meaning here: tags are not words; leave it out")
        return self
