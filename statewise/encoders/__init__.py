"""What needs the whole input before it can answer: functions `(x, lengths) -> y`, without a step."""

from statewise.encoders import laws as laws
from statewise.encoders.attention import MultiHeadAttention as MultiHeadAttention
from statewise.encoders.attention import basic_attention as basic_attention
from statewise.encoders.bidirectional import Bidirectional as Bidirectional
from statewise.encoders.bidirectional import seen_backwards as seen_backwards
from statewise.encoders.composer import ChildSumTreeLSTM as ChildSumTreeLSTM
from statewise.encoders.composer import Composition as Composition
from statewise.encoders.composer import NaryTreeLSTM as NaryTreeLSTM
from statewise.encoders.composer import NodeState as NodeState
from statewise.encoders.composer import TreeLSTMState as TreeLSTMState
from statewise.encoders.grid import CORNERS as CORNERS
from statewise.encoders.grid import GridEncoder as GridEncoder
from statewise.encoders.grid import seen_order as seen_order
from statewise.encoders.transformer import EncoderLayer as EncoderLayer
from statewise.encoders.transformer import TransformerEncoder as TransformerEncoder
from statewise.encoders.tree import TreeEncoder as TreeEncoder
from statewise.kernels import reverse_rows as reverse_rows
from statewise.kernels.tree import Forest as Forest
from statewise.kernels.tree import balanced as balanced
from statewise.kernels.tree import chain as chain
from statewise.kernels.tree import forest as forest
from statewise.kernels.tree import from_nltk as from_nltk
