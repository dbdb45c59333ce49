"""The lens `gradient` on tasks that answer row by row."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from statewise.figures import Drawing
from statewise.inspection.chosen import chosen
from statewise.inspection.finding import Finding
from statewise.inspection.gradient import picture, row_picture
from statewise.inspection.gradient.clipping import clipping
from statewise.inspection.gradient.flow import Decay
from statewise.inspection.gradient.jacobian import Stretch
from statewise.inspection.gradient.recurrence import jacobians, kept_leaves, without_eigenvalues
from statewise.inspection.gradient.row_flow import RowFlow, Sides, by_part, follow_long_row, follow_row
from statewise.inspection.gradient.settings import SHORTEST, GradientSettings
from statewise.inspection.progress import Progress
from statewise.inspection.subject import Subject
from statewise.tasks import Specimen, Specimens

_ROWS = 12
_PRECISE = 1 << 20  # numbers that enter with a row whose graph is held whole: in double precision up to so many
_HELD = 1 << 23  # and at all
_STATES = 2048  # places of a row up to which every state on the way is kept


def look_at_rows(subject: Subject, specimens: Specimens, settings: GradientSettings, progress: Progress) -> Finding:
    words, missing = specimens.words, []
    # In double precision: what is left of a gradient after many steps is small, and must not be noise.
    precise = specimens.precise()
    numbers = _chosen(precise, settings.rows or _ROWS)
    rows = [precise.at(number) for number in numbers]
    large = [at for at, one in enumerate(rows) if not _in_parts(one) and one.x_TE.numel() > _PRECISE]
    if large:
        rows = [specimens.at(number) if at in large else rows[at] for at, number in enumerate(numbers)]
        missing.append(f"{len(large)} of {len(rows)} rows are so long that they were followed in single precision.")
    flows = []
    for one in progress.over(rows, "following gradients back"):
        queries = _queries(one, settings.queries)
        long = len(one) > _STATES
        flows.append(
            follow_long_row(one, queries) if long and _in_parts(one) else follow_row(one, queries, states=not long)
        )
    if any(len(one) > _STATES and _has_states(one) for one in rows):
        missing.append(
            f"Rows of more than {_STATES:,} {words.place}s are followed to what was read, not to each state."
        )
    if not any(map(_has_states, rows)):
        missing.append("All of a row is read at once, or from several ends: there is no one state along it to follow.")
    if any(one.begin is not None and not one.readers for one in rows):
        missing.append(f"The {rows[0].parts[0].name} is read all at once: there is no state along it to follow.")
    if not words.distance:
        missing.append(f"A {words.place} has no distance in time from the answer: there is a map alone.")
    if not specimens.told:
        missing.append("What is right is not known here: the cost is that of the model's own answer.")
    sides = by_part(rows, flows)
    first = max(range(len(rows)), key=lambda at: len(rows[at]))
    stretches: list[Stretch] = []
    found_PN: list[Tensor] = []
    machine = rows[first].machine
    if machine is not None and len(rows[first]) <= _STATES:
        z_TI = flows[first].z_TI[rows[first].first :]
        with torch.no_grad():
            begun = rows[first].begun(flows[first].z_TI[None])
        stretches, found_PN = jacobians(machine, z_TI, settings, progress, begun=begun)
        kept = kept_leaves(machine, z_TI, begun)
        if not found_PN:
            missing.append(without_eigenvalues(machine, z_TI, settings.largest, begun=begun))
        elif kept:
            missing.append(
                f"{', '.join(kept)}: handed on as it is at every step, so that each number is an eigenvalue 1."
            )
    clips = None if subject.run is None else clipping(subject.run.path)
    figures: list[Drawing] = [
        *row_picture.decays(sides, settings.threshold, words),
        *row_picture.parts(rows, flows, words),
        *row_picture.row_drawings(rows[first], flows[first], words),
        *picture.jacobians(stretches, found_PN),
        *picture.clips(clips),
    ]
    return Finding(
        "gradient",
        "Gradients through what was read",
        subject.name,
        tuple(_sentences(subject.name, specimens, rows, flows, sides, settings)),
        tuple(figures),
        data={
            "rows": [one.name for one in rows],
            "threshold": settings.threshold,
            "parts": row_picture.shares(rows, flows),
            "decay": {
                name: {way: _as_data(decay, settings.threshold) for way, decay in one._asdict().items()}
                for name, one in sides.items()
            },
            "jacobian": [
                {"steps": one.steps, "rms": one.rms, "largest": one.singular[0] if one.singular else None}
                for one in stretches
            ],
            "spectral_radius": [float(one_N.abs().max()) for one_N in found_PN],
            "clipping": None if clips is None else {**clips._asdict(), "total": clips.total},
        },
        missing=tuple(missing),
    )


def _as_data(one: Decay | None, threshold: float) -> dict[str, Any] | None:
    return None if one is None else {**one._asdict(), "memory_length": one.length(threshold)}


def _chosen(specimens: Specimens, count: int) -> list[int]:
    """Rows whose graph can be held: what is read along time is held in parts, and may be as long as it likes."""
    some = chosen(specimens, count, shortest=SHORTEST)
    first = specimens.at(some[0])
    return (
        some if _in_parts(first) else chosen(specimens, count, shortest=SHORTEST, longest=_HELD // first.x_TE.shape[1])
    )


def _in_parts(one: Specimen) -> bool:
    """Whether a long row can be read again on the way back, stretch by stretch."""
    return one.machine is not None and one.begin is None


def _has_states(one: Specimen) -> bool:
    return one.machine is not None or bool(one.readers) or one.composed is not None


def _queries(one: Specimen, most: int) -> list[int]:
    count = len(one.questions)
    return [int(at) for at in np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int))]


def _sentences(
    name: str,
    specimens: Specimens,
    rows: list[Specimen],
    flows: list[RowFlow],
    sides: dict[str, Sides],
    settings: GradientSettings,
) -> list[str]:
    words = specimens.words
    said: list[Any] = []
    read = {which: one for which, one in sides.items() if not row_picture.is_state(which)}
    if read:
        counts = "; ".join(
            f"{row_picture.named(which)} counts {row_picture.reach(one, settings.threshold, words)}"
            for which, one in read.items()
        )
        said.append(
            f"{name} was followed back from {sum(len(flow.queries) for flow in flows)} answers in {len(rows)} rows of "
            f"{specimens.source}: {counts}."
        )
        said += row_picture.parts_sentence(row_picture.shares(rows, flows))
    else:
        said.append(
            f"{name} was followed back from {len(rows)} answers, one for each of some rows of {specimens.source}."
        )
    said.append(row_picture.heaviest(rows, flows, words))
    return said
