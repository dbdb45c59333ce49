"""From a machine to tokens and text: filters on a distribution, one loop, one incremental decoder."""

from statewise.decoding.beam import beam_search as beam_search
from statewise.decoding.generate import Continuation as Continuation
from statewise.decoding.generate import begin as begin
from statewise.decoding.generate import extend as extend
from statewise.decoding.generate import generate as generate
from statewise.decoding.generate import read as read
from statewise.decoding.graph import overwrite as overwrite
from statewise.decoding.graph import prefill as prefill
from statewise.decoding.sampling import RowSampling as RowSampling
from statewise.decoding.sampling import Sampling as Sampling
from statewise.decoding.sampling import choose as choose
from statewise.decoding.sampling import draw as draw
from statewise.decoding.search import Hypothesis as Hypothesis
from statewise.decoding.search import alignment_tap as alignment_tap
from statewise.decoding.search import greedy as greedy
from statewise.decoding.search import sample as sample
from statewise.decoding.termination import LengthCalibration as LengthCalibration
from statewise.decoding.termination import calibrate_lengths as calibrate_lengths
from statewise.decoding.termination import decode_until_end as decode_until_end
from statewise.runtime import TextStream as TextStream
