"""Where the models were surprised, and where they disagree: the same held-out text, piece by piece."""

import math
from collections.abc import Sequence
from itertools import accumulate
from statistics import fmean
from typing import NamedTuple

from statewise.comparison.report.results import Results

Pieces = list[tuple[str, float]]
LEVELS = (0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 8.0)  # bits: where a deeper colour begins
MOST = 12  # disagreements that are shown
_BEFORE, _AFTER = 32, 12  # characters around a piece


class Surprised(NamedTuple):
    """A text as one entry read it: its pieces with the bits each cost, the mean over seeds."""

    entry: str
    pieces: tuple[tuple[str, float], ...]
    total: float  # bits

    def per_character(self) -> float:
        return self.total / max(sum(len(piece) for piece, _ in self.pieces), 1)


class Disagreement(NamedTuple):
    before: str
    piece: str
    after: str
    bits: dict[str, float]  # by entry
    expected_by: str
    surprised: str
    gap: float


def level(bits: float) -> int:
    return sum(bits >= bound for bound in LEVELS)


def readings(results: Results) -> tuple[list[Surprised], list[str]]:
    """Each entry's reading, and a word on those that have none or that read another text."""
    found, missing, texts = [], [], {}
    for entry in results.done:
        runs = [one.surprise for one in results.final[entry] if one.surprise]
        if not runs:
            missing.append(f"{entry} has no surprise by piece: it is not a model of text, or it was not measured.")
            continue
        same = [run for run in runs if _text(run) == _text(runs[0])]
        pieces = _merged(same)
        texts[entry] = _text(runs[0])
        found.append(Surprised(entry, tuple(pieces), sum(bits for _, bits in pieces)))
    if found:
        shared = max(texts.values(), key=list(texts.values()).count)
        other = [one.entry for one in found if texts[one.entry] != shared]
        missing += [f"{entry} read another text than the others, and is not set beside them." for entry in other]
        found = [one for one in found if one.entry not in other]
    return found, missing


def disagreements(read: Sequence[Surprised]) -> list[Disagreement]:
    """The pieces with the largest difference between two entries, as far as the pieces' ends are shared."""
    if len(read) < 2:
        return []
    ends = sorted(set.intersection(*(set(_ends(one.pieces)) for one in read)))
    text = _text(read[0].pieces)
    spans = list(zip([0, *ends[:-1]], ends))
    bits = {one.entry: _between(one.pieces, ends) for one in read}
    found = []
    for at, (start, end) in enumerate(spans):
        here = {entry: values[at] for entry, values in bits.items()}
        low, high = min(here, key=here.__getitem__), max(here, key=here.__getitem__)
        before, after = text[max(start - _BEFORE, 0) : start], text[end : end + _AFTER]
        found.append(Disagreement(before, text[start:end], after, here, low, high, here[high] - here[low]))
    return sorted(found, key=lambda one: -one.gap)[:MOST]


def _merged(runs: Sequence[Pieces]) -> Pieces:
    """The mean over seeds, in the finest pieces that all of them share."""
    ends = sorted(set.intersection(*(set(_ends(run)) for run in runs)))
    text = _text(runs[0])
    columns = [_between(run, ends) for run in runs]
    starts = [0, *ends[:-1]]
    return [(text[a:b], fmean(values) / math.log(2)) for a, b, *values in zip(starts, ends, *columns)]


def _ends(pieces: Sequence[tuple[str, float]]) -> list[int]:
    return list(accumulate(len(piece) for piece, _ in pieces))


def _between(pieces: Sequence[tuple[str, float]], ends: Sequence[int]) -> list[float]:
    """What was paid between one end and the next."""
    paid = {0: 0.0}
    paid.update(zip(_ends(pieces), accumulate(cost for _, cost in pieces)))
    return [paid[end] - paid[start] for start, end in zip([0, *ends[:-1]], ends)]


def _text(pieces: Sequence[tuple[str, float]]) -> str:
    return "".join(piece for piece, _ in pieces)
