"""Predicted labels against true ones, by scikit-learn.

K labels.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from statewise.specs import UserError
from statewise.tasks.metric.optional import library
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
    metrics = library("sklearn.metrics")
    occurring = set(true) | set(predicted)
    labels = [*names, *sorted(occurring - set(names))]
    true, predicted = list(true), list(predicted)
    table = metrics.precision_recall_fscore_support(true, predicted, labels=labels, zero_division=0.0)
    macro = metrics.f1_score(true, predicted, labels=sorted(occurring), average="macro", zero_division=0.0)
    return LabelScores(
        accuracy=right,
        macro_f1=Score("macro F1", float(macro), True, "over:occurring|zero:0", len(true)),
        labels=tuple(
            LabelScore(label, float(p), float(r), float(f), int(n)) for label, p, r, f, n in zip(labels, *table)
        ),
        # Of a single label scikit-learn warns that there may be more; `labels` are all there are.
        confusion_KK=metrics.confusion_matrix(true, predicted, labels=labels)
        if len(labels) > 1
        else np.array([[len(true)]]),
    )


def label_scores(true: Sequence[str], predicted: Sequence[str], *, names: Sequence[str] = ()) -> LabelFigures:
    """What `measure` finds, as plain numbers."""
    scores = measure(true, predicted, names=names)
    return LabelFigures(
        accuracy=scores.accuracy.value,
        macro_f1=scores.macro_f1.value,
        per_class={
            one.label: {"precision": one.precision, "recall": one.recall, "f1": one.f1, "count": one.count}
            for one in scores.labels
        },
        confusion=scores.confusion_KK.tolist(),
        labels=[one.label for one in scores.labels],
    )


def auc(true: Sequence[bool], p_true: Sequence[float]) -> Score:
    """Area under the receiver's curve: how often a true one is given more than a false one."""
    check_pairs(len(p_true), len(true), of="labels")
    if len(set(map(bool, true))) < 2:
        raise UserError("the area under the curve needs both true and false examples, here is only one kind")
    value = library("sklearn.metrics").roc_auc_score([bool(t) for t in true], list(p_true))
    return Score("AUC", float(value), True, "binary", len(true))
