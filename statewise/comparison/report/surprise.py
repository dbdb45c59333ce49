"""What models generate, how many bits the same held-out text costs each, and where they disagree."""

import math
from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from statewise.comparison.report.results import Results
from statewise.comparison.statistics import Ranking
from statewise.display import plain
from statewise.figures import Pieces, between, shared_ends, text_of

LEVELS = (0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 8.0)  # bits: where a darker colour begins
MOST = 12  # disagreements that are shown
SAMPLES = 4  # samples and readings that are shown at most
READABLE = 0.5  # bits per byte of a readable sample, as a share of those of token frequencies, at most
_UNIGRAM = "token frequencies"  # its name among the trivial predictors
_BEFORE, _AFTER = 32, 12  # characters around a piece


class Surprised(NamedTuple):
    """A text in pieces with the bits each cost an entry, the mean over seeds."""

    entry: str
    pieces: tuple[tuple[str, float], ...]
    total: float  # bits

    def per_character(self) -> float:
        return self.total / max(sum(len(piece) for piece, _ in self.pieces), 1)


class Written(NamedTuple):
    """A sample of one entry, with the bits of each sampled piece."""

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


def written(results: Results, ranking: Ranking) -> tuple[list[Written], str]:
    """Readable samples of the best entries, one per kind of model, and a sentence on those that are left out.

    A sample counts as readable if its model needs at most half as many bits per byte as token frequencies do.
    """
    sampled = [
        standing.entry for standing in ranking.standings if any(run.sample for run in results.final[standing.entry])
    ]
    bound, metric = results.anchors.get(_UNIGRAM), results.study.metric
    if not sampled:
        return [], ""
    if metric != "bits_per_byte" or bound is None:
        return [], "No samples: the score of token frequencies is needed to judge whether text is readable."
    means = {standing.entry: standing.mean for standing in ranking.standings}
    readable = [name for name in sampled if means[name] <= READABLE * bound]
    first_of_kind = {results.kinds.get(name, name): name for name in reversed(readable)}
    shown = [name for name in readable if name in first_of_kind.values()][:SAMPLES]
    samples = []
    for entry in shown:
        run = next(run for run in results.final[entry] if run.sample)
        pieces = tuple((piece, nats / math.log(2)) for piece, nats in run.sample or ())
        samples.append(Written(entry, run.seed, pieces))
    rule = f"{plain(READABLE * bound)} bits per byte, half of what token frequencies need"
    if not samples:
        return [], f"No samples: no model reaches {rule}, and worse models do not generate readable text."
    left = len(sampled) - len(samples)
    return samples, f"Shown: the best model of each kind below {rule}; {left} others are left out." if left else ""


def readings(results: Results) -> tuple[list[Surprised], list[str]]:
    """The bits of each entry on the held-out text, and a note on entries that have none or read another text."""
    read, missing, texts = [], [], {}
    for entry in results.done:
        runs = [run.surprise for run in results.final[entry] if run.surprise]
        if not runs:
            missing.append(f"{entry}: bits per character were not measured.")
            continue
        same = [run for run in runs if text_of(run) == text_of(runs[0])]
        pieces = _merged(same)
        texts[entry] = text_of(runs[0])
        read.append(Surprised(entry, tuple(pieces), sum(bits for _, bits in pieces)))
    if read:
        shared = max(texts.values(), key=list(texts.values()).count)
        other = [reading.entry for reading in read if texts[reading.entry] != shared]
        missing += [f"{entry} read another text, so it is not compared." for entry in other]
        read = [reading for reading in read if reading.entry not in other]
    return read, missing


def disagreements(read: Sequence[Surprised]) -> list[Disagreement]:
    """The pieces with the largest difference between two entries; tokenizers are compared where tokens of both end."""
    if len(read) < 2:
        return []
    ends = shared_ends([reading.pieces for reading in read])
    text = text_of(read[0].pieces)
    spans = list(zip([0, *ends[:-1]], ends))
    bits = {reading.entry: between(reading.pieces, ends) for reading in read}
    differences = []
    for at, (start, end) in enumerate(spans):
        here = {entry: values[at] for entry, values in bits.items()}
        low, high = min(here, key=here.__getitem__), max(here, key=here.__getitem__)
        before, after = text[max(start - _BEFORE, 0) : start], text[end : end + _AFTER]
        differences.append(Disagreement(before, text[start:end], after, here, low, high, here[high] - here[low]))
    return sorted(differences, key=lambda difference: -difference.gap)[:MOST]


def _merged(runs: Sequence[Pieces]) -> list[tuple[str, float]]:
    """The mean over seeds, in the finest pieces that all of them share."""
    ends = shared_ends(runs)
    text = text_of(runs[0])
    columns = [between(run, ends) for run in runs]
    starts = [0, *ends[:-1]]
    return [(text[a:b], fmean(values) / math.log(2)) for a, b, *values in zip(starts, ends, *columns)]
