"""Metrics by name, with label and direction."""

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from statewise.specs import UserError
from statewise.training import Better


class Metric(NamedTuple):
    """A number that an evaluation reports. This is the one place that knows its unit and which direction is better."""

    name: str
    label: str  # with its unit, in sentences and on axes
    better: Better = "lower"
    share: bool = False  # between 0 and 1: differences are given as they are, not in per cent
    per_token: bool = False  # depends on the tokenizer: models with different ones do not compare
    cross_entropy: bool = False  # all such metrics of a model are one quantity in different units


_KNOWN = (
    Metric("bits_per_byte", "bits per byte", cross_entropy=True),
    Metric("bits_per_byte_reset", "bits per byte, state reset"),
    Metric("bits_per_byte_gained", "bits per byte, gained by carrying", "higher"),
    Metric("nats_per_token", "nats per token", per_token=True, cross_entropy=True),
    Metric("bits_per_token", "bits per token"),
    Metric("perplexity", "perplexity", per_token=True, cross_entropy=True),
    Metric("nats", "nats", per_token=True, cross_entropy=True),
    Metric("accuracy", "accuracy", "higher", share=True),
    Metric("accuracy_at", "accuracy, distance", "higher", share=True),
    Metric("root_accuracy", "accuracy at the root", "higher", share=True),
    Metric("node_accuracy", "accuracy over nodes", "higher", share=True),
    Metric("new_word_accuracy", "new word accuracy", "higher", share=True),
    Metric("macro_f1", "macro F1", "higher", share=True),
    Metric("span_f1", "F1 of spans", "higher", share=True),
    Metric("exact", "share of exact matches", "higher", share=True),
    Metric("length_exact", "share of right lengths", "higher", share=True),
    Metric("bleu", "BLEU", "higher"),
    Metric("bleu_tokenised_lower", "BLEU, tokenised, lower case", "higher"),
    Metric("chrf", "chrF", "higher"),
    Metric("ter", "TER"),
    Metric("mse", "MSE"),
    Metric("mae", "MAE"),
    Metric("milliseconds_per_token", "ms per token"),
    Metric("state_bytes", "bytes of state"),
)
METRICS: Mapping[str, Metric] = MappingProxyType({metric.name: metric for metric in _KNOWN})


def metric_of(name: str) -> Metric:
    """The metric of this name. One that is not listed is an error or a loss: lower is better.

    >>> metric_of("accuracy").better, metric_of("length_error").label, metric_of("accuracy_at.16").label
    ('higher', 'length error', 'accuracy, distance 16')
    """
    table, _, key = name.partition(".")
    if key and table in METRICS:
        return METRICS[table]._replace(name=name, label=f"{METRICS[table].label} {key}")
    return METRICS.get(name) or Metric(name, name.replace("_", " "))


def directions(*names: str) -> dict[str, Better]:
    """Which direction of each metric is better.

    >>> directions("accuracy", "nats")
    {'accuracy': 'higher', 'nats': 'lower'}
    """
    return {name: metric_of(name).better for name in names}


def perplexity(nats: float) -> float:
    """`exp(nats)`: 1 is perfect, the number of choices knows nothing."""
    return math.exp(nats) if nats < 700 else math.inf


def check_pairs(left: int, right: int, *, of: str) -> None:
    """As many answers as truths, and at least one."""
    if left != right:
        raise UserError(f"{left} predicted {of}, but {right} true ones", fix="predict each one exactly once")
    if left == 0:
        raise UserError(f"there are no {of} to measure")
