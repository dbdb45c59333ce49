"""Tagging: a sequence of words, a tag for each."""

from statewise.tasks.tagging.job import TaggingJob as TaggingJob
from statewise.tasks.tagging.run import TaggingEvaluation as TaggingEvaluation
from statewise.tasks.tagging.run import TaggingRun as TaggingRun
