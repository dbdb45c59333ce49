"""The lineage, in order: who came when, what its state is, what it fixed, and how to train it."""

from typing import NamedTuple

from statewise.figures import Table
from statewise.specs import (
    BasicAttentionSpec,
    DeepRNNSpec,
    ElmanSpec,
    GatedDeltaSpec,
    GRUSpec,
    JordanSpec,
    LatentSpec,
    LeakySpec,
    LinearAttentionSpec,
    LSTMSpec,
    Mamba2Spec,
    MarkovSpec,
    MinGRUSpec,
    MinLSTMSpec,
    ModelSpec,
    ReservoirSpec,
    TransformerSpec,
    TTTLinearSpec,
    TTTMLPSpec,
    WindowSpec,
)


class Ancestor(NamedTuple):
    """One model of the lineage."""

    name: str
    id: str  # its row in the mission
    family: str
    year: int
    paper: str
    state: str  # what it remembers, in words
    fixed: str  # what it fixed in its predecessors
    cost: str  # what that took
    spec: ModelSpec  # at its default size
    variants: tuple[ModelSpec, ...] = ()  # other settings, at a small size, that the laws are checked on

    @property
    def recipe(self) -> str:
        """A name that `statewise train` knows."""
        return self.name


class Lineage(tuple[Ancestor, ...]):
    """All models in order of year. Each row has `name`, `year`, `paper`, `state`, `fixed`, `cost`, `recipe`, `spec`.

    >>> [row.name for row in sw.LINEAGE if row.year == 2014]
    ['gru', 'deep_rnn']
    >>> print(sw.LINEAGE)
    model             year  state
    markov            1913  the last few symbols, nothing else
    ...
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return Table.of_texts(
            ("model", "year", "state"), ((row.name, str(row.year), row.state) for row in self), words=3
        ).as_text()


_ROWS = (
    Ancestor(
        name="markov",
        id="A1",
        family="before recurrence",
        year=1913,
        paper="Markov, An Example of Statistical Investigation of the Text Eugene Onegin, St. Petersburg",
        state="the last few symbols, nothing else",
        fixed="symbols are not drawn one by one from a bag: what came before is counted",
        cost="contexts multiply with the order; most long ones are never seen, and none resembles another",
        spec=MarkovSpec(),
        variants=(
            MarkovSpec(order=2, smoothing="modified"),
            MarkovSpec(order=3, smoothing="add-k", add=0.3),
            MarkovSpec(order=1, discount=0.4, lowest="counts"),
        ),
    ),
    Ancestor(
        name="latent",
        id="A3",
        family="before recurrence",
        year=1960,
        paper="Kalman, A New Approach to Linear Filtering and Prediction Problems, Journal of Basic Engineering 82, "
        "doi 10.1115/1.3662552",
        state="a summary h of the past; how it is renewed, h' = g(h, x), is free",
        fixed="what is remembered no longer has to be a list of the last symbols",
        cost="g has to be chosen or learnt, and the summary computed one step after the other",
        spec=LatentSpec(),
        variants=(
            LatentSpec(width=12, transition="elman"),
            LatentSpec(width=12, transition="gated"),
            LatentSpec(width=12, hidden=7),
        ),
    ),
    Ancestor(
        name="jordan",
        id="A5",
        family="recurrent",
        year=1986,
        paper="Jordan, Serial Order: A Parallel Distributed Processing Approach, ICS Report 8604",
        state="the last output o: all that comes back, until the next token says what it should have been",
        fixed="its outputs lead to its next ones; where the true ones are known, all time steps are trained at once",
        cost="the past is known only as far as the output tells it; run freely, it meets its own mistakes",
        spec=JordanSpec(),
        variants=(
            JordanSpec(width=12, feedback="output"),
            JordanSpec(width=12, activation="relu"),
        ),
    ),
    Ancestor(
        name="elman",
        id="A4",
        family="recurrent",
        year=1990,
        paper="Elman, Finding Structure in Time, Cognitive Science 14, doi 10.1207/s15516709cog1402_1",
        state="a vector h, rewritten at every step",
        fixed="a window forgets all that left it; a vector can carry any distance",
        cost="gradients shrink or grow with every step; time cannot be parallel",
        spec=ElmanSpec(),
        variants=(
            ElmanSpec(width=12, activation="relu"),
            ElmanSpec(width=12, zoneout=0.2),
            ElmanSpec(width=12, kernel="naive"),
        ),
    ),
    Ancestor(
        name="leaky",
        id="A12",
        family="recurrent",
        year=1992,
        paper="Mozer, Induction of Multiscale Temporal Structure, NIPS 4",
        state="a vector h; each unit keeps a share of what it held",
        fixed="units with time scales of their own: a share near 1 keeps for long, and passes gradients on",
        cost="the share does not look at the input: it cannot keep one thing and drop the next",
        spec=LeakySpec(),
        variants=(
            LeakySpec(width=12, leak="fixed"),
            LeakySpec(width=12, leak="fixed", alpha=0.0),
            LeakySpec(width=12, alpha=0.7, activation="relu"),
        ),
    ),
    Ancestor(
        name="lstm",
        id="A6",
        family="recurrent",
        year=1997,
        paper="Hochreiter and Schmidhuber, Long Short-Term Memory, Neural Computation 9, "
        "doi 10.1162/neco.1997.9.8.1735",
        state="a pair: what it shows (h) and an additive cell (c)",
        fixed="the cell passes on by a gate alone, so gradients survive hundreds of steps",
        cost="four products a step instead of one, twice the state",
        spec=LSTMSpec(),
        variants=(
            LSTMSpec(width=12, peephole=True),
            LSTMSpec(width=12, projection=5),
            LSTMSpec(width=12, layer_norm=True),
            LSTMSpec(width=12, coupled=True),
            LSTMSpec(width=12, coupled=True, peephole=True, projection=7, layer_norm=True, zoneout=0.1),
            LSTMSpec(width=12, kernel="naive"),
        ),
    ),
    Ancestor(
        name="reservoir",
        id="A12",
        family="recurrent",
        year=2001,
        paper="Jaeger, The Echo State Approach to Analysing and Training Recurrent Neural Networks, GMD Report 148",
        state="a vector h in a random recurrence that is never trained",
        fixed="no gradient has to pass through time: only the read-out is trained, on series in closed form",
        cost="what the random recurrence does not keep cannot be learnt; it needs many units",
        spec=ReservoirSpec(),
        variants=(
            ReservoirSpec(width=12, alpha=0.5, radius=1.2, density=1.0),
            ReservoirSpec(width=12, init="orthogonal", input_scale=0.3),
        ),
    ),
    Ancestor(
        name="window",
        id="A2",
        family="before recurrence",
        year=2003,
        paper="Bengio et al., A Neural Probabilistic Language Model, JMLR 3",
        state="the last inputs, as many as the window holds but one",
        fixed="words seen in one context help in similar ones; counts alone share nothing",
        cost="blind beyond its window, and each further step of it costs weights",
        spec=WindowSpec(),
        variants=(
            WindowSpec(width=12, order=1, activation="relu"),
            WindowSpec(width=12, order=3, hidden=7, activation="gelu"),
            WindowSpec(width=12, order=4, activation="linear", kernel="naive"),
        ),
    ),
    Ancestor(
        name="gru",
        id="A7",
        family="recurrent",
        year=2014,
        paper="Cho et al., Learning Phrase Representations using RNN Encoder-Decoder, EMNLP, arXiv 1406.1078",
        state="a vector h that a gate can leave unchanged",
        fixed="nearly the LSTM's memory with one state and three products",
        cost="no separate cell: what it keeps it must also show",
        spec=GRUSpec(),
        variants=(
            GRUSpec(width=12, reset="before"),
            GRUSpec(width=12, zoneout=0.2),
            GRUSpec(width=12, kernel="naive"),
        ),
    ),
    Ancestor(
        name="deep_rnn",
        id="A8",
        family="recurrent",
        year=2014,
        paper="Pascanu, Gulcehre, Cho and Bengio, How to Construct Deep Recurrent Neural Networks, ICLR, "
        "arXiv 1312.6026",
        state="a vector h, rewritten by several layers at every step",
        fixed="one layer a step computes little; depth between input, states and output computes more",
        cost="a longer way for gradients at every step; the skip shortens it again",
        spec=DeepRNNSpec(),
        variants=(
            DeepRNNSpec(width=12, input_depth=1, transition_depth=1, output_depth=1),
            DeepRNNSpec(width=12, input_depth=3, transition_depth=3, output_depth=1),
            DeepRNNSpec(width=12, input_depth=1, transition_depth=2, output_depth=3, skip=False),
        ),
    ),
    Ancestor(
        name="basic_attention",
        id="A17",
        family="attention",
        year=2017,
        paper="Vaswani et al., Attention Is All You Need, NeurIPS (its core, without the maps), arXiv 1706.03762",
        state="the list of everything read",
        fixed="nothing is squeezed into a vector: any past token is one step away",
        cost="no parameters and no sense of order; the list grows, and so does each step",
        spec=BasicAttentionSpec(),
        variants=(BasicAttentionSpec(width=12, kernel="naive"),),
    ),
    Ancestor(
        name="transformer",
        id="A20",
        family="attention",
        year=2017,
        paper="Vaswani et al., Attention Is All You Need, NeurIPS, arXiv 1706.03762",
        state="the list of all keys and values (the KV cache), a list in each layer",
        fixed="training is parallel in time, and gradients reach any distance in one step",
        cost="time and memory per token grow with the context, unless a window bounds it",
        spec=TransformerSpec(),
        variants=(
            TransformerSpec(width=12, depth=1, heads=2, position="none"),
            TransformerSpec(width=12, depth=1, heads=4, kv_heads=2, position="learned", context=32),
            TransformerSpec(width=12, depth=1, heads=2, position="sinusoidal", norm_place="post", mlp="relu"),
            TransformerSpec(width=12, depth=1, heads=3, position="alibi", norm="rms", mlp="swiglu", bias=False),
            TransformerSpec(width=12, depth=1, heads=3, kv_heads=1, window=3, norm="rms", head_bias=False),
            TransformerSpec(width=12, depth=2, heads=4, kv_heads=2, window=20, position="alibi"),
            TransformerSpec(width=12, depth=1, heads=2, head_width=10, query_key_norm=True, kernel="naive"),
        ),
    ),
    Ancestor(
        name="linear_attention",
        id="A24",
        family="linear recurrence",
        year=2020,
        paper="Katharopoulos et al., Transformers are RNNs, ICML, arXiv 2006.16236",
        state="a matrix per head: the sum of key-value products, and the sum of keys",
        fixed="attention's list, which grows with time, becomes a matrix of fixed size",
        cost="keys that are not orthogonal blur each other, and nothing is ever taken away",
        spec=LinearAttentionSpec(),
        variants=(
            LinearAttentionSpec(width=12, feature="identity", heads=3),
            LinearAttentionSpec(width=12, heads=1, conv=3, mlp="gelu"),
            LinearAttentionSpec(width=12, kernel="naive"),
        ),
    ),
    Ancestor(
        name="mamba2",
        id="A24",
        family="linear recurrence",
        year=2024,
        paper="Dao and Gu, Transformers are SSMs, ICML, arXiv 2405.21060",
        state="a matrix per head that fades as the input says, and a few last inputs",
        fixed="what is kept and what is passed over depends on the input, and training stays parallel",
        cost="one decay for a whole head; it adds and fades, but cannot replace one thing alone",
        spec=Mamba2Spec(),
        variants=(
            Mamba2Spec(width=12, conv=0, gate=False, heads=3, skip="head"),
            Mamba2Spec(width=12, expand=1, state=4, conv=2, conv_bias=True, heads=1, mlp="gelu"),
            Mamba2Spec(width=12, kernel="naive"),
        ),
    ),
    Ancestor(
        name="ttt_linear",
        id="A22",
        family="test-time training",
        year=2024,
        paper="Sun et al., Learning to (Learn at Test Time): RNNs with Expressive Hidden States, arXiv 2407.04620",
        state="the weights of a linear model per head, and its steps since the last mini-batch",
        fixed="compressing the past becomes learning: each token trains the state on its own loss",
        cost="a forward and a backward pass of the inner model for every token",
        spec=TTTLinearSpec(),
        variants=(
            TTTLinearSpec(width=12, mini_batch=1),
            TTTLinearSpec(width=12, mini_batch=3, heads=3, conv=4),
            TTTLinearSpec(width=12, mini_batch=4, inner_norm=False, rate=0.3, heads=1),
            TTTLinearSpec(width=12, mini_batch=4, kernel="naive", mlp="swiglu"),
        ),
    ),
    Ancestor(
        name="ttt_mlp",
        id="A22",
        family="test-time training",
        year=2024,
        paper="Sun et al., Learning to (Learn at Test Time): RNNs with Expressive Hidden States, arXiv 2407.04620",
        state="the weights of a two-layer network per head, and its steps since the last mini-batch",
        fixed="the state is no longer linear in what it holds: it can fit what a matrix cannot",
        cost="a state many times as large, and more than twice the work for every token",
        spec=TTTMLPSpec(),
        variants=(
            TTTMLPSpec(width=12, mini_batch=1),
            TTTMLPSpec(width=12, mini_batch=3, heads=3, ratio=2, rate=0.5, conv=2),
            TTTMLPSpec(width=12, mini_batch=4, inner_norm=False, heads=1, kernel="naive"),
        ),
    ),
    Ancestor(
        name="mingru",
        id="A24",
        family="linear recurrence",
        year=2024,
        paper="Feng et al., Were RNNs All We Needed?, arXiv 2410.01201",
        state="a vector h, decayed and added to unit by unit",
        fixed="the gate does not look at the state, so a stretch of time is one parallel scan",
        cost="a layer cannot react to what it remembers; that takes the layer above",
        spec=MinGRUSpec(),
        variants=(
            MinGRUSpec(width=12, candidate="positive"),
            MinGRUSpec(width=12, candidate="tanh", mlp="swiglu"),
            MinGRUSpec(width=12, kernel="naive"),
        ),
    ),
    Ancestor(
        name="minlstm",
        id="A24",
        family="linear recurrence",
        year=2024,
        paper="Feng et al., Were RNNs All We Needed?, arXiv 2410.01201",
        state="a vector h, decayed and added to unit by unit",
        fixed="two gates as in an LSTM, and still one parallel scan",
        cost="a third product, and no cell apart from what it shows",
        spec=MinLSTMSpec(),
        variants=(
            MinLSTMSpec(width=12, share=False),
            MinLSTMSpec(width=12, candidate="positive", norm="layer"),
            MinLSTMSpec(width=12, kernel="naive"),
        ),
    ),
    Ancestor(
        name="gated_delta",
        id="A24",
        family="linear recurrence",
        year=2024,
        paper="Yang et al., Gated Delta Networks: Improving Mamba2 with Delta Rule, arXiv 2412.06464",
        state="a matrix per head that maps keys to values, and a few last inputs",
        fixed="a key's old value is taken out before the new one is put in, and all can fade",
        cost="a triangular system per chunk; the state is still of fixed size",
        spec=GatedDeltaSpec(),
        variants=(
            GatedDeltaSpec(width=12, decay=False, conv=0, gate=False),
            GatedDeltaSpec(width=12, heads=3, conv=2, mlp="swiglu"),
            GatedDeltaSpec(width=12, kernel="naive"),
        ),
    ),
)

LINEAGE = Lineage(_ROWS)
