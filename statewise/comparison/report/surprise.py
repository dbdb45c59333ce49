"""Where the models were surprised, and where they disagree: the same held-out text, piece by piece."""

import math
from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from statewise.comparison.report.results import Results
from statewise.figures.piece import Pieces, between, shared_ends, text_of

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


class Written(NamedTuple):
    """A sample of one entry, with the bits that each piece cost when it was chosen."""

    entry: str
    seed: int
    pieces: tuple[tuple[str, float], ...]

    @property
    def text(self) -> str:
        return text_of(self.pieces)

    def per_character(self) -> float:
        return sum(bits for _, bits in self.pieces) / max(len(self.text), 1)


class Disagreement(NamedTuple):
    before: str
    piece: str
    after: str
    bits: dict[str, float]  # by entry
    expected_by: str
    surprised: str
    gap: float


def level(bits: float, bounds: Sequence[float] = LEVELS) -> int:
    return sum(bits >= bound for bound in bounds)


def written(results: Results) -> list[Written]:
    """Of each entry what its first seed wrote."""
    found = []
    for entry in results.done:
        first = next((one for one in results.final[entry] if one.sample is not None), None)
        if first is not None and first.sample is not None:
            found.append(Written(entry, first.seed, tuple((piece, nats / math.log(2)) for piece, nats in first.sample)))
    return found


def readings(results: Results) -> tuple[list[Surprised], list[str]]:
    """Each entry's reading, and a word on those that have none or that read another text."""
    found, missing, texts = [], [], {}
    for entry in results.done:
        runs = [one.surprise for one in results.final[entry] if one.surprise]
        if not runs:
            missing.append(f"{entry} has no surprise by piece: it is not a model of text, or it was not measured.")
            continue
        same = [run for run in runs if text_of(run) == text_of(runs[0])]
        pieces = _merged(same)
        texts[entry] = text_of(runs[0])
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
    ends = shared_ends([one.pieces for one in read])
    text = text_of(read[0].pieces)
    spans = list(zip([0, *ends[:-1]], ends))
    bits = {one.entry: between(one.pieces, ends) for one in read}
    found = []
    for at, (start, end) in enumerate(spans):
        here = {entry: values[at] for entry, values in bits.items()}
        low, high = min(here, key=here.__getitem__), max(here, key=here.__getitem__)
        before, after = text[max(start - _BEFORE, 0) : start], text[end : end + _AFTER]
        found.append(Disagreement(before, text[start:end], after, here, low, high, here[high] - here[low]))
    return sorted(found, key=lambda one: -one.gap)[:MOST]


def _merged(runs: Sequence[Pieces]) -> list[tuple[str, float]]:
    """The mean over seeds, in the finest pieces that all of them share."""
    ends = shared_ends(runs)
    text = text_of(runs[0])
    columns = [between(run, ends) for run in runs]
    starts = [0, *ends[:-1]]
    return [(text[a:b], fmean(values) / math.log(2)) for a, b, *values in zip(starts, ends, *columns)]
