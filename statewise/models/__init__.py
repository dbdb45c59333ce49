"""Whole models out of mixers: block, stack, language model; `build` turns a spec into a module."""

from statewise.models.build import build as build
from statewise.models.build import build_mixer as build_mixer
from statewise.models.build_seq2seq import build_seq2seq as build_seq2seq
from statewise.models.encoding import ENCODERS as ENCODERS
from statewise.models.encoding import Encoding as Encoding
from statewise.models.growth import context_bytes as context_bytes
from statewise.models.language_model import LanguageModel as LanguageModel
from statewise.models.lineage import LINEAGE as LINEAGE
from statewise.models.lineage import Ancestor as Ancestor
from statewise.models.markov import Markov as Markov
from statewise.models.markov import MarkovState as MarkovState
from statewise.models.sample import build_sample as build_sample
from statewise.models.seq2seq import Seq2Seq as Seq2Seq
from statewise.models.stack import Stack as Stack
from statewise.models.stack import StackState as StackState
from statewise.models.token_machine import CountingMachine as CountingMachine
from statewise.models.token_machine import TokenMachine as TokenMachine
from statewise.models.transformer import Transformer as Transformer
from statewise.models.transformer import TransformerState as TransformerState
