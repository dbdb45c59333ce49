"""The lineage, in order: who came when, what its state is, what it fixed, and how to train it."""

from typing import NamedTuple

from statewise.specs import ElmanSpec, GRUSpec, LSTMSpec, ModelSpec


class Ancestor(NamedTuple):
    name: str
    id: str  # the row of the mission it answers
    family: str
    year: int
    paper: str
    state: str  # what it remembers, in words
    fixed: str  # what it mended in those before it
    cost: str  # what that took
    recipe: str  # a name `statewise train` knows
    spec: ModelSpec  # at its default size
    variants: tuple[ModelSpec, ...] = ()  # other forms, at a small size, that the laws are checked on


LINEAGE: tuple[Ancestor, ...] = (
    Ancestor(
        name="elman",
        id="A4",
        family="recurrent",
        year=1990,
        paper="Elman, Finding Structure in Time, Cognitive Science 14",
        state="a vector h, rewritten at every step",
        fixed="a window forgets all that left it; a vector can carry any distance",
        cost="gradients shrink or grow with every step; time cannot be parallel",
        recipe="elman",
        spec=ElmanSpec(),
        variants=(
            ElmanSpec(width=12, activation="relu"),
            ElmanSpec(width=12, zoneout=0.2),
            ElmanSpec(width=12, kernel="naive"),
        ),
    ),
    Ancestor(
        name="lstm",
        id="A6",
        family="recurrent",
        year=1997,
        paper="Hochreiter and Schmidhuber, Long Short-Term Memory, Neural Computation 9",
        state="a pair: what it shows (h) and an additive cell (c)",
        fixed="the cell passes on by a gate alone, so gradients survive hundreds of steps",
        cost="four products a step instead of one, twice the state",
        recipe="lstm",
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
        name="gru",
        id="A7",
        family="recurrent",
        year=2014,
        paper="Cho et al., Learning Phrase Representations using RNN Encoder-Decoder, EMNLP",
        state="a vector h that a gate can leave unchanged",
        fixed="nearly the LSTM's memory with one state and three products",
        cost="no separate cell: what it keeps it must also show",
        recipe="gru",
        spec=GRUSpec(),
        variants=(
            GRUSpec(width=12, reset="before"),
            GRUSpec(width=12, zoneout=0.2),
            GRUSpec(width=12, kernel="naive"),
        ),
    ),
)


def ancestor(name: str) -> Ancestor:
    return next(row for row in LINEAGE if row.name == name)
