"""Predicted labels against true ones, as scikit-learn defines the metrics.

K labels.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from statewise.tasks.metric.score import check_pairs


class LabelScores(NamedTuple):
    accuracy: float
    macro_f1: float  # a mean over the labels that occur, in truth or in the prediction
    per_class: dict[str, dict[str, float]]  # precision, recall, F1, and how many truly are of this label
    confusion: list[list[int]]  # [true, predicted], in the order of `labels`
    labels: list[str]


def label_scores(true: Sequence[str], predicted: Sequence[str], *, names: Sequence[str] = ()) -> LabelScores:
    """All of it. `names` sets the order; a label that occurs without being named is added, never left out."""
    check_pairs(len(predicted), len(true), of="labels")
    occurring = set(true) | set(predicted)
    labels = [*names, *sorted(occurring - set(names))]
    place = {name: number for number, name in enumerate(labels)}
    confusion_KK = np.zeros((len(labels), len(labels)), dtype=np.int64)
    np.add.at(confusion_KK, ([place[name] for name in true], [place[name] for name in predicted]), 1)
    hits_K, count_K, predicted_K = confusion_KK.diagonal(), confusion_KK.sum(1), confusion_KK.sum(0)
    table = {
        "precision": hits_K / np.maximum(predicted_K, 1),
        "recall": hits_K / np.maximum(count_K, 1),
        "f1": 2 * hits_K / np.maximum(predicted_K + count_K, 1),
        "count": count_K,
    }
    return LabelScores(
        accuracy=sum(a == b for a, b in zip(true, predicted)) / len(true),
        macro_f1=float(np.mean([table["f1"][place[name]] for name in sorted(occurring)])),
        per_class={
            name: {metric: values_K[at].item() for metric, values_K in table.items()} for at, name in enumerate(labels)
        },
        confusion=confusion_KK.tolist(),
        labels=labels,
    )
