"""Data that is always there: read from the running Python, or made by a generator from a seed."""

from statewise.data.embedded.digits import digits as digits
from statewise.data.embedded.operations import operations as operations
from statewise.data.embedded.parts import Parts as Parts
from statewise.data.embedded.passages import distance_of as distance_of
from statewise.data.embedded.passages import passages as passages
from statewise.data.embedded.phrases import kinds_of_phrases as kinds_of_phrases
from statewise.data.embedded.phrases import phrases as phrases
from statewise.data.embedded.probes import MEMORY_TASKS as MEMORY_TASKS
from statewise.data.embedded.probes import MemoryRow as MemoryRow
from statewise.data.embedded.probes import MemoryTask as MemoryTask
from statewise.data.embedded.probes import probe_pairs as probe_pairs
from statewise.data.embedded.probes import recall as recall
from statewise.data.embedded.series import embedded_series as embedded_series
from statewise.data.embedded.series import oscillations as oscillations
from statewise.data.embedded.standard_library import ast_trees as ast_trees
from statewise.data.embedded.standard_library import docstrings as docstrings
from statewise.data.embedded.standard_library import source_tags as source_tags
