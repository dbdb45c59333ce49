"""Predicted labels against true ones, as scikit-learn defines the metrics.

K labels.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from statewise.tasks.metric.score import Score, check_pairs


class LabelScore(NamedTuple):
    label: str
    precision: float
    recall: float
    f1: float
    count: int  # type: ignore[assignment]  # hides tuple.count; how many truly are of this label


class LabelScores(NamedTuple):
    accuracy: Score
    macro_f1: Score  # a mean over the labels that occur, in truth or in the prediction
    labels: tuple[LabelScore, ...]
    confusion_KK: NDArray[np.int64]  # [true, predicted], in the order of `labels`


class LabelFigures(NamedTuple):
    """The same as plain numbers, ready for JSON."""

    accuracy: float
    macro_f1: float
    per_class: dict[str, dict[str, float]]
    confusion: list[list[int]]
    labels: list[str]  # the order of `confusion`


def accuracy(true: Sequence[str], predicted: Sequence[str], *, of: str = "labels") -> Score:
    """The share that is right, 0 to 1."""
    check_pairs(len(predicted), len(true), of=of)
    hits = sum(a == b for a, b in zip(true, predicted))
    return Score("accuracy", hits / len(true), True, f"of:{of}", len(true))


def measure(true: Sequence[str], predicted: Sequence[str], *, names: Sequence[str] = ()) -> LabelScores:
    """All of it. `names` sets the order; a label that occurs without being named is added, never left out."""
    right = accuracy(true, predicted)
    occurring = set(true) | set(predicted)
    labels = [*names, *sorted(occurring - set(names))]
    place = {name: number for number, name in enumerate(labels)}
    confusion_KK = np.zeros((len(labels), len(labels)), dtype=np.int64)
    np.add.at(confusion_KK, ([place[name] for name in true], [place[name] for name in predicted]), 1)
    hits_K, count_K, predicted_K = confusion_KK.diagonal(), confusion_KK.sum(1), confusion_KK.sum(0)
    precision_K, recall_K = hits_K / np.maximum(predicted_K, 1), hits_K / np.maximum(count_K, 1)
    f1_K = 2 * hits_K / np.maximum(predicted_K + count_K, 1)
    macro = float(np.mean([f1_K[place[name]] for name in sorted(occurring)]))
    table = zip(labels, precision_K.tolist(), recall_K.tolist(), f1_K.tolist(), count_K.tolist())
    return LabelScores(
        accuracy=right,
        macro_f1=Score("macro F1", macro, True, "over:occurring|zero:0", len(true)),
        labels=tuple(LabelScore(*row) for row in table),
        confusion_KK=confusion_KK,
    )


def label_scores(true: Sequence[str], predicted: Sequence[str], *, names: Sequence[str] = ()) -> LabelFigures:
    """What `measure` finds, as plain numbers."""
    scores = measure(true, predicted, names=names)
    return LabelFigures(
        accuracy=scores.accuracy.value,
        macro_f1=scores.macro_f1.value,
        per_class={
            label.label: {"precision": label.precision, "recall": label.recall, "f1": label.f1, "count": label.count}
            for label in scores.labels
        },
        confusion=scores.confusion_KK.tolist(),
        labels=[label.label for label in scores.labels],
    )
