"""Classification: a whole sequence, one class."""

from statewise.tasks.classification.job import ClassificationJob as ClassificationJob
from statewise.tasks.classification.run import ClassificationEvaluation as ClassificationEvaluation
from statewise.tasks.classification.run import ClassificationRun as ClassificationRun
