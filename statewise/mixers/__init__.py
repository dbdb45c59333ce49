"""What carries information along time: one idea, one file, its own state type."""

from statewise.mixers.elman import Elman as Elman
from statewise.mixers.elman import ElmanState as ElmanState
from statewise.mixers.gru import GRU as GRU
from statewise.mixers.gru import GRUState as GRUState
from statewise.mixers.lstm import LSTM as LSTM
from statewise.mixers.lstm import LSTMState as LSTMState
