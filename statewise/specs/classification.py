"""Classification as data: rows that each have a label, read by any model of the lineage."""

from typing import ClassVar, Literal, Self

from pydantic import Field

from statewise.specs.base import Spec
from statewise.specs.model import MixerSpec
from statewise.specs.objective import CategoricalSpec
from statewise.specs.paths import Paths
from statewise.specs.reader import ReaderSpec
from statewise.specs.recurrent import LSTMSpec
from statewise.specs.run import RunSpec, absolute


class LabelledDataSpec(Spec):
    train: Paths = Field((), description="files, or a folder of <label>.txt; empty: the embedded docstrings")
    validation: Paths = Field((), description="files held out; empty: a share of `train`, of each label alike")
    held_out: float = Field(0.1, gt=0, lt=1, description="share of `train` held out when `validation` is empty")
    kind: Literal["text", "values"] = Field("text", description="what a row holds: a text, or a sequence of numbers")
    format: Literal["auto", "csv", "tsv", "quoted-tsv", "jsonl", "label-first", "folder"] = Field(
        "auto", description="auto: by the file's ending"
    )
    header: Literal["auto", "yes", "no"] = Field("auto", description="auto: where a column is named")
    text: str | int = Field("text", description="column of the text, by name or by number from 0")
    label: str | int = Field("label", description="column of the label (of an .npz: the array)")
    values: str = Field("x", description="of an .npz: the array of the sequences")
    empty: Literal["refuse", "skip", "keep"] = Field("refuse", description="labelled rows without text")
    tokenizer: str = Field("word", min_length=1, description="char, byte, word, wordpunct, bpe, or a tokenizer.json")
    vocab: int | None = Field(None, ge=2, description="largest vocabulary; default: that of the tokenizer")
    lower: bool = Field(False, description="read as if all were in lower case")
    min_count: int = Field(1, ge=1, description="rarer words are unknown")
    longest: int = Field(400, ge=1, description="tokens of a row that are read; of a longer one the first so many")


class ClassificationSpec(RunSpec):
    main_data: ClassVar[str] = "data.train"

    task: Literal["classification"] = "classification"
    data: LabelledDataSpec = LabelledDataSpec()
    model: MixerSpec = LSTMSpec()
    reader: ReaderSpec = ReaderSpec()
    objective: CategoricalSpec = CategoricalSpec()

    @property
    def name(self) -> str:
        return f"{self.model.kind}-classification"

    def absolute(self) -> Self:
        data = {"train": absolute(self.data.train), "validation": absolute(self.data.validation)}
        return self.model_copy(update={"data": self.data.model_copy(update=data)})
