"""The encoders, in order: what reads the whole input at once stands beside the lineage, not in it."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
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


class Encoding(NamedTuple):
    name: str
    id: str  # its row in the mission
    year: int
    paper: str
    computes: str  # what it makes of its input, in words
    fixed: str  # what it fixed in its predecessors
    cost: str  # what that took
    make: Callable[[int], Encoder]  # of a width
    width: int = 256  # by default
    variants: Mapping[str, Callable[[int], Encoder]] = MappingProxyType({})  # other settings, also under the laws


ENCODERS: tuple[Encoding, ...] = (
    Encoding(
        name="bidirectional",
        id="A9",
        year=1997,
        paper="Schuster and Paliwal, Bidirectional Recurrent Neural Networks, IEEE Trans. Signal Processing 45",
        computes="at each time step, what two mixers know of all before it and of all after it",
        fixed="a time step is understood from what follows it too",
        cost="it must have the whole input; it cannot run along, and cannot write",
        make=lambda width: Bidirectional(forward=LSTM(width), backward=LSTM(width)),
        variants={
            "back.projection=5": lambda width: Bidirectional(forward=LSTM(width), backward=LSTM(width, projection=5)),
            "gru and mingru": lambda width: Bidirectional(forward=GRU(width, kernel="naive"), backward=MinGRU(width)),
            "merge=join": lambda width: Bidirectional(forward=GRU(width), backward=GRU(width), merge="join"),
        },
    ),
    Encoding(
        name="grid",
        id="A10",
        year=2007,
        paper="Graves, Fernández and Schmidhuber, Multi-Dimensional Recurrent Neural Networks, ICANN",
        computes="at each cell of a grid, what lies towards each of its four corners",
        fixed="both ends of a line become the four corners of a picture: each cell sees all others",
        cost="as many steps as height and width together; the whole grid must be there",
        make=GridEncoder,
        variants={"kernel=naive": lambda width: GridEncoder(width, kernel="naive")},
    ),
    Encoding(
        name="tree",
        id="A11",
        year=2015,
        paper="Tai, Socher and Manning, Improved Semantic Representations from Tree-Structured LSTMs, ACL",
        computes="a vector for every node of a tree, from its children; the root's stands for the whole",
        fixed="two words far apart may be close in a tree: log2 of the length instead of the length",
        cost="somebody has to say what the tree is; batches are of trees, not of rows",
        make=lambda width: TreeEncoder(NaryTreeLSTM(width)),
        variants={
            "composition": lambda width: TreeEncoder(Composition(width)),
            "kernel=naive": lambda width: TreeEncoder(NaryTreeLSTM(width), kernel="naive"),
            "arity=3, chain": lambda width: TreeEncoder(NaryTreeLSTM(width, arity=3), shape="chain"),
            "child-sum": lambda width: TreeEncoder(ChildSumTreeLSTM(width)),
            "child-sum, chain": lambda width: TreeEncoder(ChildSumTreeLSTM(width), shape="chain"),
        },
    ),
    Encoding(
        name="transformer_encoder",
        id="A20",
        year=2017,
        paper="Vaswani et al., Attention Is All You Need, NeurIPS",
        computes="at each time step, what all others answered to its questions, layer after layer",
        fixed="any two positions are one step apart, and all are computed at once",
        cost="time and memory grow with the square of the length; order has to be told",
        make=lambda width: TransformerEncoder(width, depth=2, heads=max(2, width // 32)),
        variants={
            "position=none": lambda width: TransformerEncoder(width, depth=2, heads=3, position="none"),
            "position=learned": lambda width: TransformerEncoder(
                width, depth=1, heads=2, position="learned", context=16, norm="rms", mlp="swiglu"
            ),
            "position=alibi, norm_place=post": lambda width: TransformerEncoder(
                width, depth=2, heads=3, position="alibi", norm_place="post"
            ),
            "kv_heads=2, position=rotary, kernel=naive": lambda width: TransformerEncoder(
                width, depth=1, heads=4, kv_heads=2, position="rotary", kernel="naive"
            ),
            "attention alone": lambda width: MultiHeadAttention(width, heads=3),
            "attention alone, kv_heads=2, position=rotary, kernel=naive": lambda width: MultiHeadAttention(
                width, heads=4, kv_heads=2, position="rotary", kernel="naive"
            ),
        },
    ),
)
