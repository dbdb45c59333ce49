"""Markov chains: counting, the tables it fills, and smoothed predictions, one context at a time or many at once."""

from statewise.kernels.ngram import batched as batched
from statewise.kernels.ngram import naive as naive
from statewise.kernels.ngram import tables as tables
from statewise.kernels.ngram.counting import Counts as Counts
from statewise.kernels.ngram.counting import count as count
from statewise.kernels.ngram.tables import Discounts as Discounts
from statewise.kernels.ngram.tables import Tables as Tables
