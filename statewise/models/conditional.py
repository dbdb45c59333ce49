"""The encoder-decoders, in order: what writes one sequence given another."""

from typing import NamedTuple

from statewise.specs import AttentionSpec, GRUSpec, LSTMSpec, Mamba2Spec, MinGRUSpec, Seq2SeqSpec, TransformerSpec


class Conditional(NamedTuple):
    name: str
    id: str  # its row in the mission
    year: int
    paper: str
    state: str  # what the decoder begins with and remembers, in words
    fixed: str  # what it fixed in its predecessors
    cost: str  # what that took
    spec: Seq2SeqSpec  # at its default size
    variants: tuple[Seq2SeqSpec, ...] = ()  # other settings, at a small size, that the laws are checked on


_SMALL = GRUSpec(width=8)


def _small(attention: AttentionSpec | None = None, **options: object) -> Seq2SeqSpec:
    looks = {} if attention is None else {"attention": attention}
    return Seq2SeqSpec.model_validate({"encoder": _SMALL, "decoder": _SMALL, **looks, **options})


ENCODER_DECODERS: tuple[Conditional, ...] = (
    Conditional(
        name="encoder_decoder",
        id="A13",
        year=2014,
        paper="Sutskever, Vinyals and Le, Sequence to Sequence Learning with Neural Networks, NeurIPS",
        state="the decoder's own, begun from one vector that stands for the source",
        fixed="input and output may have different lengths and different orders",
        cost="all of the source in one vector, however long it is; the decoder may forget it while writing",
        spec=Seq2SeqSpec(encoder=LSTMSpec(), decoder=LSTMSpec(), context="initial"),
        variants=(
            _small(context="initial", source="mean"),
            _small(context="initial", output_edges=False),
            _small(context="initial", encoder=Mamba2Spec(width=8), decoder=LSTMSpec(width=6, depth=2)),
            _small(context="initial", decoder=MinGRUSpec(width=8, depth=2), bidirectional=True),
        ),
    ),
    Conditional(
        name="contextual_decoder",
        id="A14",
        year=2014,
        paper="Cho et al., Learning Phrase Representations using RNN Encoder-Decoder, EMNLP",
        state="the decoder's own, and the source's vector beside it, which every step reads",
        fixed="what was read is a bias of every step and cannot be forgotten while writing",
        cost="still one vector for all of the source",
        spec=Seq2SeqSpec(context="both"),
        variants=(
            _small(context="each_step"),
            _small(context="both", source="mean", output_edges=False),
            _small(context="each_step", source="max", bidirectional=True),
            _small(context="both", output="deep"),
            _small(context="initial", output="deep", decoder=LSTMSpec(width=6, tie=True), bidirectional=True),
            _small(context="each_step", decoder=TransformerSpec(width=8, heads=2)),
        ),
    ),
    Conditional(
        name="attention_decoder",
        id="A15",
        year=2015,
        paper="Bahdanau, Cho and Bengio, Neural Machine Translation by Jointly Learning to Align and Translate, ICLR",
        state="the decoder's own, and a list: an output of the encoder for every position of the source",
        fixed="a context of its own for every step: any word of the source is one look away",
        cost="as many scores as the source has positions, at every step; training waits for each step",
        spec=Seq2SeqSpec(bidirectional=True),
        variants=(
            _small(AttentionSpec(begin=False)),
            _small(decoder=GRUSpec(width=8, depth=2, residual=True, norm="layer", mlp="gelu")),
            _small(AttentionSpec(style="luong", score="dot")),
            _small(AttentionSpec(style="luong", score="general", input_feeding=False), bidirectional=True),
        ),
    ),
    Conditional(
        name="general_attention",
        id="A16",
        year=2015,
        paper="Luong, Pham and Manning, Effective Approaches to Attention-based Neural Machine Translation, EMNLP",
        state="the decoder's own, the list of the source, and what the last look found, which is fed back",
        fixed="query, score, alignment and context are separate parts, each of which can be another",
        cost="a choice to be made for each part",
        spec=Seq2SeqSpec(
            encoder=LSTMSpec(), decoder=LSTMSpec(), attention=AttentionSpec(style="luong", score="general")
        ),
        variants=(
            _small(AttentionSpec(style="luong", score="concat", alignment="local_predictive", reach=2)),
            _small(AttentionSpec(style="luong", score="scaled_dot", alignment="local_monotonic", reach=2)),
            _small(AttentionSpec(style="bahdanau", score="cosine", alignment="sparsemax")),
            _small(AttentionSpec(style="luong", score="location", longest=9)),
            _small(AttentionSpec(style="bahdanau", score="scaled_dot", heads=2, hops=2)),
        ),
    ),
    Conditional(
        name="transformer_seq2seq",
        id="A20",
        year=2017,
        paper="Vaswani et al., Attention Is All You Need, NeurIPS",
        state="in every layer, keys and values of all that was written, and those of the source, made once",
        fixed="no step waits for the one before while training, in the encoder or in the decoder",
        cost="what is remembered grows with what is written; every layer looks at all of the source",
        spec=Seq2SeqSpec(
            encoder=TransformerSpec(position="sinusoidal"),
            decoder=TransformerSpec(position="sinusoidal"),
            bidirectional=True,
        ),
        variants=(
            _small(encoder=GRUSpec(width=6), decoder=TransformerSpec(width=8, heads=2), bidirectional=True),
            _small(
                encoder=TransformerSpec(width=8, heads=2, position="learned", context=16, norm_place="post"),
                decoder=TransformerSpec(
                    width=8, heads=2, position="learned", context=32, norm_place="post", mlp="relu", tie=True
                ),
                bidirectional=True,
                share_embeddings=True,
            ),
            _small(
                decoder=TransformerSpec(width=8, heads=2, kv_heads=1, window=3, norm="rms", mlp="swiglu", bias=False)
            ),
        ),
    ),
)
