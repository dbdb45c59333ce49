"""From a machine to tokens and text: filters on a distribution, one loop, one incremental decoder."""

from statewise.decoding.generate import Continuation as Continuation
from statewise.decoding.generate import begin as begin
from statewise.decoding.generate import generate as generate
from statewise.decoding.generate import read as read
from statewise.decoding.sampling import Sampling as Sampling
from statewise.decoding.sampling import choose as choose
from statewise.decoding.text import TextStream as TextStream
