"""An encoder-decoder as data: who reads, who writes, and how what was read reaches the writer."""

from typing import Literal, Self

from pydantic import Field, model_validator

from statewise.specs.base import Spec
from statewise.specs.model import MixerSpec
from statewise.specs.recurrent import GRUSpec


class AttentionSpec(Spec):
    """How a decoder looks back at the source."""

    style: Literal["bahdanau", "luong"] = Field(
        "bahdanau", description="look before the state is updated (bahdanau) or after (luong)"
    )
    score: Literal["additive", "dot", "scaled_dot", "general", "concat", "location", "cosine"] = "additive"
    alignment: Literal["soft", "sparsemax", "local_monotonic", "local_predictive", "hard"] = "soft"
    reach: int = Field(4, ge=1, description="local alignments: how far from the centre")
    hops: int = Field(1, ge=1, description="looks in a row")
    hidden: int | None = Field(None, ge=1, description="width inside additive and concat scores")
    longest: int = Field(256, ge=1, description="location score: source positions it knows")
    begin: bool = Field(True, description="the decoder's first state comes from the source's summary, where it can")
    input_feeding: bool = Field(True, description="luong: what was found goes into the next step's input")


class Seq2SeqSpec(Spec):
    encoder: MixerSpec = GRUSpec()
    decoder: MixerSpec = GRUSpec()
    bidirectional: bool = Field(False, description="read the source from both ends")
    context: Literal["initial", "each_step", "both", "attention"] = Field(
        "attention", description="what was read becomes the first state, an input at every step, both, or is looked at"
    )
    source: Literal["last", "mean"] = Field("last", description="what stands for the whole source")
    output_edges: bool = Field(True, description="each output is the next step's input")
    attention: AttentionSpec = AttentionSpec()

    @model_validator(mode="after")
    def _feeding_is_luongs(self) -> Self:
        if self.context != "attention" and self.attention != AttentionSpec():
            raise ValueError(f"attention is set, but context is {self.context!r}; set context = 'attention'")
        return self
