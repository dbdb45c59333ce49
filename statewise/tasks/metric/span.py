"""Tag sequences against true ones: whole spans as conlleval and seqeval count them."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from statewise.specs import UserError
from statewise.tasks.metric.score import check_pairs

_TAG = re.compile(r"O|[BIESLU]-.+")
_SCHEMES = (re.compile(r"O|[BIES]-.+"), re.compile(r"O|[BILU]-.+"))  # IOB and IOBES, BILOU
_AS_IOBES = {"L": "E", "U": "S"}


class SpanScores(NamedTuple):
    """A span is right when its kind and both its ends are."""

    f1: float  # micro-averaged
    precision: float
    recall: float


def marks_spans(names: Sequence[str]) -> bool:
    """Whether tags are those of IOB, IOBES or BILOU, and not O alone."""
    return set(names) != {"O"} and any(all(map(scheme.fullmatch, names)) for scheme in _SCHEMES)


def measure(true: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> SpanScores:
    """A stray `I-X` begins a span, as in conlleval; IOBES and BILOU end theirs where they say."""
    _check_rows(true, predicted)
    for number, row in enumerate((*true, *predicted)):
        for tag in row:
            if not _TAG.fullmatch(tag):
                which = "true" if number < len(true) else "predicted"
                raise UserError(
                    f"tag {tag!r} of {which} row {number % len(true)} names no span, expected O, B-<kind> or I-<kind>",
                    fix="for tags of single words measure the token accuracy",
                )
    asked, given = (
        {(number, *found) for number, row in enumerate(rows) for found in _spans(row)} for rows in (true, predicted)
    )
    hits = len(asked & given)
    f1 = 2 * hits / max(len(asked) + len(given), 1)
    return SpanScores(f1, hits / max(len(given), 1), hits / max(len(asked), 1))


def _spans(row: Sequence[str]) -> Iterator[tuple[str, int, int]]:
    """Kind, first and last token of each span: it ends before O and before the beginning of another."""
    begin, before = 0, ("O", "")
    for at, tag in enumerate([*row, "O"]):
        mark, kind = _AS_IOBES.get(tag[0], tag[0]), tag[2:]
        begins = mark in "BS" or (mark in "IE" and (before[0] in "ESO" or kind != before[1]))
        if before[0] != "O" and (begins or mark == "O"):
            yield before[1], begin, at - 1
        if begins:
            begin = at
        before = mark, kind


def _check_rows(true: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> None:
    check_pairs(len(predicted), len(true), of="rows")
    for number, (a, b) in enumerate(zip(true, predicted)):
        if len(a) != len(b):
            raise UserError(f"row {number} has {len(b)} predicted tags, but {len(a)} true ones")
