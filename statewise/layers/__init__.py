"""Modules and functions without time."""

from statewise.layers.dropout import Dropout as Dropout
from statewise.layers.dropout import drop as drop
from statewise.layers.dropout import one_sequence as one_sequence
from statewise.layers.embedding import Embedding as Embedding
from statewise.layers.heads import Heads as Heads
from statewise.layers.initialise import Scheme as Scheme
from statewise.layers.initialise import fill_input as fill_input
from statewise.layers.initialise import fill_recurrent as fill_recurrent
from statewise.layers.linear import make_linear as make_linear
from statewise.layers.mlp import MLP as MLP
from statewise.layers.norm import make_norm as make_norm
from statewise.layers.position import alibi_slopes as alibi_slopes
from statewise.layers.position import sinusoid as sinusoid
from statewise.layers.readout import Readout as Readout
from statewise.layers.readout import fit_readout as fit_readout
