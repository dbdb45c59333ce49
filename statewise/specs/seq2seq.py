"""An encoder-decoder as data: encoder, decoder, and how the source reaches the decoder."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from statewise.specs.base import Spec, default_kind
from statewise.specs.mixer import GRUSpec
from statewise.specs.model import AnyMixerSpec, MixerSpec

Style = Literal["bahdanau", "luong", "each_layer"]
ScoreKind = Literal["additive", "dot", "scaled_dot", "general", "concat", "location", "cosine"]
AlignmentKind = Literal["soft", "sparsemax", "local_monotonic", "local_predictive", "hard"]


class AttentionSpec(Spec):
    """How a decoder looks back at the source."""

    style: Style | None = Field(
        None,
        description="look before the state is updated (bahdanau), after it (luong), or in every layer of a Transformer "
        "(each_layer); default: each_layer for a Transformer decoder, bahdanau for any other",
    )
    score: ScoreKind = Field("additive", description="how well a source position fits the decoder's state")
    alignment: AlignmentKind = Field("soft", description="how scores become weights of the source positions")
    reach: int = Field(4, ge=1, description="local alignments: how far from the centre")
    hops: int = Field(1, ge=1, description="looks in a row")
    heads: int = Field(1, ge=1, description="looks side by side, each with a share of the source's width")
    hidden: int | None = Field(None, ge=1, description="width inside additive and concat scores")
    longest: int = Field(256, ge=1, description="location score: source positions it knows")
    query: Literal["token", "state"] = Field(
        "token",
        description="bahdanau: the last output asks with the token that was written last (token), or alone (state)",
    )
    begin: bool = Field(True, description="the decoder's first state comes from the source's summary, where it can")
    input_feeding: bool = Field(True, description="luong: what was found goes into the next step's input")


class LinearEncoderSpec(Spec):
    """No layers: the vector of a class, or a linear map of numbers, is all that is read."""

    tie: ClassVar[bool] = False
    embedding_dropout: ClassVar[float] = 0.0
    token_scale: ClassVar[float] = 1.0
    longest: ClassVar[int | None] = None

    kind: Literal["linear"] = "linear"
    width: int = Field(64, ge=1, description="of the vector")
    input_dropout: float = Field(0.0, ge=0, lt=1, description="on the vector")

    @property
    def embedding_width(self) -> int:
        return self.width

    def reader_output(self, *, bidirectional: bool) -> int:
        return self.width

    def small(self) -> Self:
        return self.model_copy(update={"width": 12})

    def sizes(self) -> dict[str, int]:
        """The settings that determine its size."""
        return {"width": self.width}


EncoderSpec = Annotated[Annotated[AnyMixerSpec | LinearEncoderSpec, Field(discriminator="kind")], default_kind("lstm")]


class Seq2SeqSpec(Spec):
    learns: ClassVar[Literal["gradient", "counting"]] = "gradient"

    kind: Literal["seq2seq"] = "seq2seq"
    encoder: EncoderSpec = Field(GRUSpec(), description="any model; or linear: no layers, for a class or a vector")
    decoder: MixerSpec = GRUSpec()
    bidirectional: bool = Field(False, description="read the source from both ends; a Transformer: without a mask")
    context: Literal["initial", "each_step", "both", "attention"] = Field(
        "attention", description="what was read becomes the first state, an input at every step, both, or is looked at"
    )
    source: Literal["last", "mean", "max"] = Field("last", description="what stands for the whole source")
    output: Literal["state", "deep"] = Field(
        "state",
        description="without attention, what the output layer reads: the decoder's state; or the state, the token "
        "written last and what stands for the source (deep)",
    )
    output_edges: bool = Field(True, description="each output is the next step's input")
    share_embeddings: bool = Field(False, description="one vocabulary, one matrix of vectors for source and target")
    attention: AttentionSpec = AttentionSpec()

    @property
    def style(self) -> Style | None:
        """The style of attention, with its default filled in; None without attention."""
        if self.context != "attention":
            return None
        return self.attention.style or ("each_layer" if self.decoder.kind == "transformer" else "bahdanau")

    @model_validator(mode="after")
    def _nothing_is_said_in_vain(self) -> Self:
        if self.context != "attention" and self.attention != AttentionSpec():
            raise ValueError(f"attention is set, but context is {self.context!r}; set context = 'attention'")
        if self.context == "attention" and self.output != "state":
            raise ValueError(
                f"output = {self.output!r} has no meaning with attention, whose output layer reads what was found; "
                "leave it out, or set context to initial, each_step or both"
            )
        if self.encoder.tie:
            raise ValueError("encoder.tie is set, but an encoder has no head; set decoder.tie, or share_embeddings")
        if self.bidirectional and self.encoder.kind == "transformer" and self.encoder.window is not None:
            raise ValueError("encoder.window looks back only; leave it out, or set bidirectional = false")
        if self.bidirectional and self.encoder.kind == "linear":
            raise ValueError("encoder.kind = 'linear' reads in no direction; set bidirectional = false")
        if self.share_embeddings and self.encoder.embedding_width != self.decoder.embedding_width:
            raise ValueError(
                f"share_embeddings needs token vectors of one width, not {self.encoder.embedding_width} (encoder) and "
                f"{self.decoder.embedding_width} (decoder); set `embedding` in one of them"
            )
        return self

    @model_validator(mode="after")
    def _each_layer_is_a_transformers(self) -> Self:
        if self.style != "each_layer":
            return self
        if self.decoder.kind != "transformer":
            raise ValueError(
                f"attention.style = 'each_layer' needs a Transformer decoder, not {self.decoder.kind!r}; "
                "use 'bahdanau' or 'luong'"
            )
        if not self.decoder.residual:
            raise ValueError("attention.style = 'each_layer' adds what is found to what is there; leave residual on")
        said = sorted(self.attention.model_fields_set - {"style"})
        odd = [key for key in said if getattr(self.attention, key) != AttentionSpec.model_fields[key].default]
        if odd:
            raise ValueError(
                f"attention.{odd[0]} has no meaning where every layer of a Transformer looks with its own heads; "
                "leave it out, or set attention.style to 'bahdanau' or 'luong'"
            )
        return self

    def small(self) -> Self:
        """The same at a small size, to check the laws on."""
        return self.model_copy(update={"encoder": self.encoder.small(), "decoder": self.decoder.small()})

    def sizes(self) -> dict[str, int]:
        """The settings that determine its size."""
        return {
            f"{part}_{name}": size
            for part, mixer in (("encoder", self.encoder), ("decoder", self.decoder))
            for name, size in mixer.sizes().items()
        }

    def reader_width(self) -> int:
        return self.encoder.reader_output(bidirectional=self.bidirectional)

    def entering(self) -> int:
        """Width of the decoder's input at every step besides the last token's vector."""
        match self.style:
            case "bahdanau":
                return self.reader_width()
            case "luong":
                return self.decoder.mixer_output() * self.attention.input_feeding
            case _:
                return self.reader_width() * (self.context in ("each_step", "both"))

    def asks_with_token(self) -> bool:
        """Whether the query of attention knows the token that was written last, beside the last output."""
        return self.style == "bahdanau" and self.attention.query == "token" and self.output_edges

    def begins(self) -> bool:
        """Whether the decoder's initial state is computed from the source's summary."""
        if self.context in ("initial", "both"):
            return True
        return self.style in ("bahdanau", "luong") and self.attention.begin and self.decoder.vector_state
