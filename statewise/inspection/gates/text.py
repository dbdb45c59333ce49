"""The walk along a text that a language model reads."""

from collections.abc import Sequence

from statewise.inspection.gates.feature import FEATURES, Feature, along
from statewise.inspection.gates.trace import sight, trace
from statewise.inspection.gates.walk import Walk, matching
from statewise.inspection.progress import Progress
from statewise.inspection.subject import Subject


def walk_text(subject: Subject, names: str, own: Sequence[Feature], *, tokens: int, progress: Progress) -> Walk:
    reading, missing = subject.tokens, []
    if len(reading) > tokens:
        missing.append(f"the first {tokens:,} of {len(reading):,} tokens were read; the setting tokens reads more")
        reading = reading.part(0, tokens)
    observed, left_out = matching(sight(subject.machine, reading), names)
    features = along((*FEATURES, *own), reading)
    chunks = trace(subject.machine, reading, observed, progress)
    return Walk(observed, features, reading.names(), chunks, (*missing, *left_out), "token")
