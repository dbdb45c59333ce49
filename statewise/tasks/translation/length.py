"""Whether what was written has the right length, and whether it is still right where targets are long."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from statewise.decoding import LengthCalibration

_GROUPS, _BEYOND = 5, 3  # of lengths that were learned from, and of longer ones


class LengthRange(NamedTuple):
    """Targets of `shortest` to `longest` tokens."""

    shortest: int
    longest: int
    beyond: bool  # longer than any target of the training part
    rows: int
    exact: float  # share of outputs that are the target, word by word
    right_length: float  # share of outputs of the target's length
    length_error: float  # tokens that outputs are too long or too short, in the mean


def by_length(
    true_N: Sequence[int], written_N: Sequence[int], exact_N: Sequence[bool], *, learned: int | None
) -> list[LengthRange]:
    """Rows grouped by the length of their targets; `learned` is the longest of the training part."""
    true, written, exact = np.asarray(true_N), np.asarray(written_N), np.asarray(exact_N)
    most = np.iinfo(np.int64).max if learned is None else learned
    every = np.unique(true)
    groups = []
    for lengths, wanted in ((every[every <= most], _GROUPS), (every[every > most], _BEYOND)):
        groups += np.array_split(lengths, min(wanted, len(lengths))) if len(lengths) else []
    found = []
    for group in groups:
        some = np.isin(true, group)
        apart = np.abs(written[some] - true[some])
        found.append(
            LengthRange(
                int(group[0]),
                int(group[-1]),
                bool(group[0] > most),
                int(some.sum()),
                float(exact[some].mean()),
                float((apart == 0).mean()),
                float(apart.mean()),
            )
        )
    return found


def for_machines(found: LengthCalibration) -> dict[str, Any]:
    """A calibration as a table of lists and numbers."""
    table = found._asdict()
    table["pit"] = list(found.pit)
    table["covered"] = {f"{share:g}": held for share, held in found.covered.items()}
    table["reliability"] = [{"drawn": drawn, "true": true, "rows": rows} for drawn, true, rows in found.reliability]
    return table
