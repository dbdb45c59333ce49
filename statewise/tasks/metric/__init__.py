"""Metrics as the field defines them, one file per kind of task."""

from statewise.tasks.metric import label as label
from statewise.tasks.metric import series as series
from statewise.tasks.metric import span as span
from statewise.tasks.metric import translation as translation
from statewise.tasks.metric.score import Metric as Metric
from statewise.tasks.metric.score import directions as directions
from statewise.tasks.metric.score import metric_of as metric_of
from statewise.tasks.metric.score import perplexity as perplexity
