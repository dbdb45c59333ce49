"""Tree classification: a class for every node."""

from statewise.tasks.tree.job import TreeJob as TreeJob
from statewise.tasks.tree.run import TreeEvaluation as TreeEvaluation
from statewise.tasks.tree.run import TreeRun as TreeRun
