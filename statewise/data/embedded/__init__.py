"""Data that is always there: read from the running Python, or made by a generator from a seed."""

from statewise.data.embedded.ast_trees import ast_trees as ast_trees
from statewise.data.embedded.digits import digits as digits
from statewise.data.embedded.docstrings import docstrings as docstrings
from statewise.data.embedded.lengths import Terminated as Terminated
from statewise.data.embedded.lengths import least_nats as least_nats
from statewise.data.embedded.lengths import terminated as terminated
from statewise.data.embedded.memory import MEMORY_TASKS as MEMORY_TASKS
from statewise.data.embedded.memory import Asked as Asked
from statewise.data.embedded.memory import MemoryTask as MemoryTask
from statewise.data.embedded.operations import operations as operations
from statewise.data.embedded.parts import Parts as Parts
from statewise.data.embedded.phrases import phrases as phrases
from statewise.data.embedded.probes import probe_pairs as probe_pairs
from statewise.data.embedded.recall import recall as recall
from statewise.data.embedded.series import GENERATORS as GENERATORS
from statewise.data.embedded.series import embedded_series as embedded_series
from statewise.data.embedded.source_tags import source_tags as source_tags
