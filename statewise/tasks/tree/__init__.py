"""Tree classification: a class for every node."""

from statewise.tasks.tree.job import TreeJob as TreeJob
from statewise.tasks.tree.job import counted as counted
from statewise.tasks.tree.job import log_probabilities as log_probabilities
from statewise.tasks.tree.job import make_trees as make_trees
from statewise.tasks.tree.run import TreeEvaluation as TreeEvaluation
from statewise.tasks.tree.run import TreeRun as TreeRun
