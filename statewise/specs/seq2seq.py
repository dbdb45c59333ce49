"""An encoder-decoder as data: who reads, who writes, and how what was read reaches the writer."""

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from statewise.specs.base import Spec
from statewise.specs.model import MixerSpec
from statewise.specs.recurrent import GRUSpec

Style = Literal["bahdanau", "luong", "each_layer"]

# Whose state is vectors and nothing else, so that a summary of the source can be where it begins.
VECTORS = ("latent", "elman", "lstm", "gru", "leaky", "reservoir", "mingru", "minlstm", "deep_rnn", "jordan")


class AttentionSpec(Spec):
    """How a decoder looks back at the source."""

    style: Style | None = Field(
        None,
        description="look before the state is updated (bahdanau), after it (luong), or in every layer of a Transformer "
        "(each_layer); default: each_layer for a Transformer decoder, bahdanau for any other",
    )
    score: Literal["additive", "dot", "scaled_dot", "general", "concat", "location", "cosine"] = Field(
        "additive", description="how well a source position fits the decoder's state"
    )
    alignment: Literal["soft", "sparsemax", "local_monotonic", "local_predictive", "hard"] = Field(
        "soft", description="how scores become weights of the source positions"
    )
    reach: int = Field(4, ge=1, description="local alignments: how far from the centre")
    hops: int = Field(1, ge=1, description="looks in a row")
    heads: int = Field(1, ge=1, description="looks side by side, each with a share of the source's width")
    hidden: int | None = Field(None, ge=1, description="width inside additive and concat scores")
    longest: int = Field(256, ge=1, description="location score: source positions it knows")
    begin: bool = Field(True, description="the decoder's first state comes from the source's summary, where it can")
    input_feeding: bool = Field(True, description="luong: what was found goes into the next step's input")


class Seq2SeqSpec(Spec):
    learns: ClassVar[Literal["gradient", "counting"]] = "gradient"

    kind: Literal["seq2seq"] = "seq2seq"
    encoder: MixerSpec = GRUSpec()
    decoder: MixerSpec = GRUSpec()
    bidirectional: bool = Field(False, description="read the source from both ends; a Transformer: without a mask")
    context: Literal["initial", "each_step", "both", "attention"] = Field(
        "attention", description="what was read becomes the first state, an input at every step, both, or is looked at"
    )
    source: Literal["last", "mean", "max"] = Field("last", description="what stands for the whole source")
    output_edges: bool = Field(True, description="each output is the next step's input")
    share_embeddings: bool = Field(False, description="one vocabulary, one matrix of vectors for source and target")
    attention: AttentionSpec = AttentionSpec()

    @property
    def style(self) -> Style | None:
        """How the decoder looks, with what was left open decided; None where it does not look at all."""
        if self.context != "attention":
            return None
        return self.attention.style or ("each_layer" if self.decoder.kind == "transformer" else "bahdanau")

    @model_validator(mode="after")
    def _nothing_is_said_in_vain(self) -> Self:
        if self.context != "attention" and self.attention != AttentionSpec():
            raise ValueError(f"attention is set, but context is {self.context!r}; set context = 'attention'")
        if self.encoder.tie:
            raise ValueError("encoder.tie is set, but an encoder has no head; set decoder.tie, or share_embeddings")
        if self.bidirectional and self.encoder.kind == "transformer" and self.encoder.window is not None:
            raise ValueError("encoder.window looks back only; leave it out, or set bidirectional = false")
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
        """The same at a small size, for trying the laws."""
        return self.model_copy(update={"encoder": self.encoder.small(), "decoder": self.decoder.small()})

    def sizes(self) -> dict[str, int]:
        """What says how large it is."""
        return {
            f"{part}_{name}": size
            for part, mixer in (("encoder", self.encoder), ("decoder", self.decoder))
            for name, size in mixer.sizes().items()
        }

    def reader_width(self) -> int:
        return self.encoder.reader_output(bidirectional=self.bidirectional)

    def num_parameters(self, source_vocab: int, target_vocab: int) -> int:
        """Parameters of the whole encoder-decoder, by formula."""
        encoder, decoder = self.encoder, self.decoder
        embedding = encoder.embedding_width
        read = encoder.reader_parameters(embedding, bidirectional=self.bidirectional)
        read += 0 if self.share_embeddings else source_vocab * embedding
        written = target_vocab * decoder.embedding_width + decoder.head_parameters(target_vocab)
        return read + written + (self._layered() if self.style == "each_layer" else self._fed())

    def flops(self, source: float, target: float, target_vocab: int) -> float:
        """Forward FLOPs of reading so many tokens and writing so many. Both may be means."""
        encoder, decoder = self.encoder, self.decoder
        read = encoder.reader_flops(encoder.embedding_width, source, bidirectional=self.bidirectional)
        once, each = self._layered_flops(source) if self.style == "each_layer" else self._fed_flops(source)
        entering = decoder.embedding_width if self.style == "each_layer" else self._entered()
        own = decoder.reader_flops(entering, target)  # the decoder's own layers read what it has written
        return read + once + own + target * (each + decoder.head_flops(target_vocab))

    def _layered_flops(self, source: float) -> tuple[float, float]:
        """Of the looks of a Transformer's layers: once for a source, and for each token that is written."""
        decoder, read = self.decoder, self.reader_width()
        width, depth = decoder.width, decoder.depth
        bring = 2 * read * width * source if read != width else 0
        listed = decoder.mixer_state(width, 1).real  # keys and values of one place
        return bring + depth * 2 * width * listed * source, depth * (4 * width * width + 4 * width * source)

    def _fed_flops(self, source: float) -> tuple[float, float]:
        """The same of one look at the source, the maps around the layers and the bridge."""
        decoder, read = self.decoder, self.reader_width()
        embedding, out = decoder.embedding_width, decoder.mixer_output()
        entering = embedding + self.entering()
        once, each = 0.0, 0.0
        if entering != self._entered():
            each += 2 * entering * embedding
        if self.style is not None:
            beside = embedding if self.style == "bahdanau" else 0
            looked = _look_flops(self.attention, out, read, source)
            once, each = once + looked[0], each + looked[1] + 2 * (out + read + beside) * out
        return once + (2 * read * self._begun() if self.begins() else 0), each

    def _entered(self) -> int:
        """Width that enters the decoder's layers."""
        entering = self.decoder.embedding_width + self.entering()
        return self.decoder.embedding_width if self.decoder.keeps_width else entering

    def _begun(self) -> int:
        """Numbers that a decoder's first state holds."""
        decoder = self.decoder
        other = (decoder.depth - 1) * decoder.mixer_state(decoder.mixer_output()).real
        return decoder.mixer_state(self._entered()).real + other

    def state_bytes(self, source: int, itemsize: int = 4) -> int:
        """What a row remembers when a source of so many tokens was read and nothing is written yet."""
        decoder, look, read = self.decoder, self.attention, self.reader_width()
        if self.style == "each_layer":
            listed = decoder.mixer_state(decoder.width, 1).real
            own = decoder.stack_bytes(decoder.embedding_width, 0, itemsize)
            return own + decoder.depth * (itemsize * listed * source + 8)
        real = read * (self.context in ("each_step", "both"))
        whole = 1  # how far it has written
        if self.style is not None:
            prepared, values = _remembered(look, decoder.mixer_output(), read)
            real += source * (prepared + values)
            whole += look.heads
            real += decoder.mixer_output() * (self.style == "bahdanau" or look.input_feeding)
        return decoder.stack_bytes(self._entered(), 0, itemsize) + itemsize * real + 8 * whole

    def _layered(self) -> int:
        """A Transformer's layers with a second attention and its norm in each."""
        decoder = self.decoder
        per_norm = {"none": 0, "rms": 1, "layer": 2}[decoder.norm]
        width, read = decoder.width, self.reader_width()
        each = decoder.mixer_parameters(width) + per_norm * width
        bring = read * width + width if read != width else 0
        return decoder.stack_parameters(decoder.embedding_width) + decoder.depth * each + bring

    def _fed(self) -> int:
        """A decoder's layers, the maps into and out of them, the look, and the bridge."""
        decoder, look, read = self.decoder, self.attention, self.reader_width()
        embedding, out = decoder.embedding_width, decoder.mixer_output()
        entering = embedding + self.entering()
        count = 0
        if decoder.keeps_width and entering != embedding:
            count, entering = entering * embedding + embedding, embedding
        count += decoder.stack_parameters(entering)
        if self.style is not None:
            beside = embedding if self.style == "bahdanau" else 0
            count += (out + read + beside) * out + out + _look_parameters(look, out, read)
        if self.begins():
            numbers = decoder.mixer_state(entering).real + (decoder.depth - 1) * decoder.mixer_state(out).real
            count += (read + 1) * numbers
        return count

    def entering(self) -> int:
        """What enters the decoder at every step beside the last token's vector."""
        match self.style:
            case "bahdanau":
                return self.reader_width()
            case "luong":
                return self.decoder.mixer_output() * self.attention.input_feeding
            case _:
                return self.reader_width() * (self.context in ("each_step", "both"))

    def begins(self) -> bool:
        """Whether the decoder's first state is made from the source's summary: a state of vectors alone can be."""
        if self.context in ("initial", "both"):
            return True
        return self.style in ("bahdanau", "luong") and self.attention.begin and self.decoder.kind in VECTORS


def _look_parameters(look: AttentionSpec, query: int, key: int) -> int:
    if look.heads == 1:
        return _score_parameters(look, query, key)
    width = max(1, key // look.heads)
    maps = look.heads * width * (query + 3 * key)
    return maps + look.heads * _score_parameters(look, width, width)


def _score_parameters(look: AttentionSpec, query: int, key: int) -> int:
    hidden = look.hidden or key
    score = {
        "additive": hidden * (query + key + 2),
        "concat": hidden * (query + key + 1),
        "general": query * key,
        "location": look.longest * query,
        "cosine": 1,
    }
    return score.get(look.score, 0) + (query * query + query if look.alignment == "local_predictive" else 0)


def _look_flops(look: AttentionSpec, query: int, key: int, source: float) -> tuple[float, float]:
    """Of one look: once for a source of so many places, and for each query."""
    if look.heads == 1:
        return _attend_flops(look, query, key, source)
    width = max(1, key // look.heads)
    once, each = _attend_flops(look, width, width, source)
    wide = look.heads * width
    return look.heads * once + 4 * key * wide * source, look.heads * each + 2 * wide * (query + key)


def _attend_flops(look: AttentionSpec, query: int, key: int, source: float) -> tuple[float, float]:
    """A vector of weights is no matrix: the counter does not see what it is multiplied with."""
    hidden = look.hidden or key
    prepare = {"additive": 2 * key * hidden, "concat": 2 * key * hidden, "general": 2 * key * query}
    asking = 2 * query * hidden if look.score in ("additive", "concat") else 2 * query * source
    centre = 2 * query * query if look.alignment == "local_predictive" else 0
    return prepare.get(look.score, 0) * source, look.hops * (asking + centre + 2 * key * source)


def _remembered(look: AttentionSpec, query: int, key: int) -> tuple[int, int]:
    """Numbers that are kept of one place: its key as the score prepared it, and its value."""
    width = key if look.heads == 1 else max(1, key // look.heads)
    asked = query if look.heads == 1 else width
    prepared = {"additive": look.hidden or width, "concat": look.hidden or width, "general": asked}
    return look.heads * prepared.get(look.score, width), look.heads * width
