"""The encoders, in order: what reads the whole input at once stands beside the lineage, not in it."""

from collections.abc import Callable
from typing import NamedTuple

from statewise.core import Encoder
from statewise.encoders import (
    Bidirectional,
    ChildSumTreeLSTM,
    Composition,
    GridEncoder,
    MultiHeadAttention,
    NaryTreeLSTM,
    TransformerEncoder,
    TreeEncoder,
)
from statewise.mixers import GRU, LSTM, MinGRU

WIDTH, SMALL = 256, 12


class Encoding(NamedTuple):
    name: str
    id: str  # its row in the mission
    year: int
    paper: str
    computes: str  # what it makes of its input, in words
    fixed: str  # what it fixed in its predecessors
    cost: str  # what that took
    make: Callable[[], Encoder]  # at its default size
    axes: int = 1  # of its input, between batch and width
    variants: tuple[Callable[[], Encoder], ...] = ()  # other settings, at a small size, that the laws are checked on


ENCODERS: tuple[Encoding, ...] = (
    Encoding(
        name="bidirectional",
        id="A9",
        year=1997,
        paper="Schuster and Paliwal, Bidirectional Recurrent Neural Networks, IEEE Trans. Signal Processing 45",
        computes="at each time step, what two mixers know of all before it and of all after it",
        fixed="a time step is understood from what follows it too",
        cost="it must have the whole input; it cannot run along, and cannot write",
        make=lambda: Bidirectional(forward=LSTM(WIDTH), backward=LSTM(WIDTH)),
        variants=(
            lambda: Bidirectional(forward=LSTM(SMALL), backward=LSTM(SMALL, projection=5)),
            lambda: Bidirectional(forward=GRU(SMALL, kernel="naive"), backward=MinGRU(SMALL)),
        ),
    ),
    Encoding(
        name="grid",
        id="A10",
        year=2007,
        paper="Graves, Fernández and Schmidhuber, Multi-Dimensional Recurrent Neural Networks, ICANN",
        computes="at each cell of a grid, what lies towards each of its four corners",
        fixed="both ends of a line become the four corners of a picture: each cell sees all others",
        cost="as many steps as height and width together; the whole grid must be there",
        make=lambda: GridEncoder(WIDTH),
        axes=2,
        variants=(lambda: GridEncoder(SMALL), lambda: GridEncoder(SMALL, kernel="naive")),
    ),
    Encoding(
        name="tree",
        id="A11",
        year=2015,
        paper="Tai, Socher and Manning, Improved Semantic Representations from Tree-Structured LSTMs, ACL",
        computes="a vector for every node of a tree, from its children; the root's stands for the whole",
        fixed="two words far apart may be close in a tree: log2 of the length instead of the length",
        cost="somebody has to say what the tree is; batches are of trees, not of rows",
        make=lambda: TreeEncoder(NaryTreeLSTM(WIDTH)),
        variants=(
            lambda: TreeEncoder(Composition(SMALL)),
            lambda: TreeEncoder(NaryTreeLSTM(SMALL), kernel="naive"),
            lambda: TreeEncoder(NaryTreeLSTM(SMALL, arity=3), shape="chain"),
            lambda: TreeEncoder(ChildSumTreeLSTM(SMALL)),
            lambda: TreeEncoder(ChildSumTreeLSTM(SMALL), shape="chain"),
        ),
    ),
    Encoding(
        name="transformer_encoder",
        id="A20",
        year=2017,
        paper="Vaswani et al., Attention Is All You Need, NeurIPS",
        computes="at each time step, what all others answered to its questions, layer after layer",
        fixed="any two positions are one step apart, and all are computed at once",
        cost="time and memory grow with the square of the length; order has to be told",
        make=lambda: TransformerEncoder(WIDTH, depth=2, heads=8),
        variants=(
            lambda: TransformerEncoder(SMALL, depth=2, heads=3, position="alibi", norm_place="post"),
            lambda: TransformerEncoder(SMALL, depth=1, heads=4, kv_heads=2, position="rotary", kernel="naive"),
            lambda: MultiHeadAttention(SMALL, heads=3),
            lambda: MultiHeadAttention(SMALL, heads=4, kv_heads=2, position="rotary", kernel="naive"),
        ),
    ),
)
