"""Drop-in twins of torch.nn's recurrent modules on our kernels, and a way to put them into any model."""

from statewise.nn.gru import GRU as GRU
from statewise.nn.gru import GRUCell as GRUCell
from statewise.nn.lstm import LSTM as LSTM
from statewise.nn.lstm import LSTMCell as LSTMCell
from statewise.nn.rnn import RNN as RNN
from statewise.nn.rnn import RNNCell as RNNCell
from statewise.nn.swap import Report as Report
from statewise.nn.swap import swap as swap
from statewise.nn.swap import unswap as unswap
