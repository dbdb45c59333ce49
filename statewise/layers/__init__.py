"""Modules and functions without time."""

from statewise.layers.alignment import make_alignment as make_alignment
from statewise.layers.attend import Attend as Attend
from statewise.layers.attend import Looks as Looks
from statewise.layers.dropout import Dropout as Dropout
from statewise.layers.dropout import drop as drop
from statewise.layers.dropout import one_sequence as one_sequence
from statewise.layers.embedding import Embedding as Embedding
from statewise.layers.embedding import check_tokens as check_tokens
from statewise.layers.heads import Heads as Heads
from statewise.layers.heads import check_heads as check_heads
from statewise.layers.initialise import Scheme as Scheme
from statewise.layers.initialise import fill_input as fill_input
from statewise.layers.initialise import fill_recurrent as fill_recurrent
from statewise.layers.linear import make_linear as make_linear
from statewise.layers.linear import unfilled_linear as unfilled_linear
from statewise.layers.mlp import MLP as MLP
from statewise.layers.norm import Norm as Norm
from statewise.layers.norm import make_norm as make_norm
from statewise.layers.position import alibi_slopes as alibi_slopes
from statewise.layers.position import sinusoid as sinusoid
from statewise.layers.readout import Readout as Readout
from statewise.layers.readout import fit_readout as fit_readout
from statewise.layers.score import make_score as make_score
from statewise.layers.transition import TransitionName as TransitionName
from statewise.layers.transition import make_transition as make_transition
