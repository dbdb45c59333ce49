"""Tag sequences against true ones: whole spans by seqeval (as CoNLL-2000 counts them), and single tokens."""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from statewise.specs import UserError
from statewise.tasks.metric import label
from statewise.tasks.metric.optional import library
from statewise.tasks.metric.score import Score, check_pairs

_TAG = re.compile(r"O|[BIESLU]-.+")
_SCHEMES = (re.compile(r"O|[BIES]-.+"), re.compile(r"O|[BILU]-.+"))  # IOB and IOBES, BILOU
_AS_IOBES = {"L": "E", "U": "S"}  # what seqeval knows


class SpanScores(NamedTuple):
    """A span is right when its kind and both its ends are."""

    f1: Score
    precision: float
    recall: float
    token_accuracy: Score


def marks_spans(names: Sequence[str]) -> bool:
    """Whether tags are those of IOB, IOBES or BILOU, and not O alone."""
    return set(names) != {"O"} and any(all(map(scheme.fullmatch, names)) for scheme in _SCHEMES)


def measure(true: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]], *, strict: bool = False) -> SpanScores:
    """By default a stray `I-X` begins a span, as in conlleval; IOBES and BILOU end theirs where they say.

    With `strict`, only what IOB2 allows is a span.
    """
    _check_rows(true, predicted)
    for number, row in enumerate((*true, *predicted)):
        for tag in row:
            if not _TAG.fullmatch(tag):
                which = "true" if number < len(true) else "predicted"
                raise UserError(
                    f"tag {tag!r} of {which} row {number % len(true)} names no span, expected O, B-<kind> or I-<kind>",
                    fix="for tags of single words measure the token accuracy",
                )
    arguments: dict[str, Any] = {"zero_division": 0}
    if strict:
        arguments |= {"mode": "strict", "scheme": library("seqeval.scheme").IOB2}
    metrics = library("seqeval.metrics")
    rows = [[[_AS_IOBES.get(tag[0], tag[0]) + tag[1:] for tag in row] for row in side] for side in (true, predicted)]
    precision, recall, f1 = (
        float(score(*rows, average="micro", **arguments))
        for score in (metrics.precision_score, metrics.recall_score, metrics.f1_score)
    )
    tokens = token_accuracy(true, predicted)
    signature = "micro|scheme:IOB2|mode:strict" if strict else "micro|mode:conlleval"
    return SpanScores(Score("span F1", f1, True, signature, tokens.count), precision, recall, tokens)


def token_accuracy(true: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> Score:
    """The share of tokens with the right tag; for any tags."""
    _check_rows(true, predicted)
    return label.accuracy([tag for row in true for tag in row], [tag for row in predicted for tag in row], of="tokens")


def _check_rows(true: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> None:
    check_pairs(len(predicted), len(true), of="rows")
    for number, (a, b) in enumerate(zip(true, predicted)):
        if len(a) != len(b):
            raise UserError(f"row {number} has {len(b)} predicted tags, but {len(a)} true ones")
