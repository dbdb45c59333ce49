"""The walk along rows, one after the other, of whatever answers row by row.

T places of a row, U units.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch

from statewise.core import lens
from statewise.inspection.gates.feature import FEATURES, Feature, Values, at_pieces
from statewise.inspection.gates.trace import Observed, Sight, Units, observed_as
from statewise.inspection.gates.walk import Walk, matching
from statewise.inspection.progress import Progress
from statewise.specs import UserError
from statewise.tasks.specimen import Specimen, Specimens

_TRIED = 2  # rows that show which names there are
_CHUNK = 512  # places that are handed on together


def walk_rows(specimens: Specimens, names: str, own: Sequence[Feature], *, places: int, progress: Progress) -> Walk:
    words = specimens.words
    if own and not words.text:
        raise UserError(
            f"features = {own[0].name!r} is of a text, and a {words.place} is none", fix="leave features out"
        )
    numbers = _enough(specimens, places)
    missing = []
    if len(numbers) < len(specimens):
        missing.append(
            f"{len(numbers):,} of {len(specimens):,} rows were read, evenly spaced; --set tokens=… reads more"
        )
    observed, left_out = matching(_sight([specimens.at(number) for number in _varied(specimens, numbers)]), names)
    between = " " if words.spaced else ""
    told = (*FEATURES, *own) if words.text else ()
    pieces: list[str] = []
    features: dict[str, list[Values]] = {}
    for number in numbers:
        one = specimens.at(number)
        mine = [f"{piece}{between}" for piece in one.pieces]
        pieces += mine
        for name, values_T in {**at_pieces(told, mine), **one.signals}.items():
            features.setdefault(name, []).append(np.asarray(values_T, dtype=np.float32))
    return Walk(
        observed,
        {name: np.concatenate(parts) for name, parts in features.items()},
        pieces,
        _chunks(specimens, numbers, observed, progress),
        (*missing, *left_out),
        words.place,
        text=words.text or words.place == "node",
        first=specimens.length(numbers[0]),
    )


def _enough(specimens: Specimens, places: int) -> list[int]:
    """Rows from all over, so many that they have about so many places together."""
    mean = float(np.mean([specimens.length(at) for at in np.linspace(0, len(specimens) - 1, 64).astype(int)]))
    count = max(_TRIED, int(places / max(mean, 1)))
    found = [int(at) for at in np.unique(np.linspace(0, len(specimens) - 1, min(count, len(specimens))).round())]
    return [at for at in found if specimens.length(at)]


def _varied(specimens: Specimens, numbers: Sequence[int]) -> list[int]:
    """A short row and a long one: what changes its size with the row is seen on them."""
    ordered = sorted(numbers, key=specimens.length)
    return list(dict.fromkeys([ordered[0], ordered[-1]]))


@torch.no_grad()
def _sight(rows: Sequence[Specimen]) -> Sight:
    shapes: dict[str, set[tuple[int, ...]]] = {}
    along: dict[str, bool] = {}
    for one in rows:
        z_1TI = one.enter(one.x_TE[None])
        with lens() as seen:
            one.read(z_1TI)
        for name, moments in seen.seen.items():
            shapes.setdefault(name, set()).update(tuple(moment.shape[1:]) for moment in moments)
            along[name] = along.get(name, True) and len(moments) == len(one)
    steady = [name for name, some in shapes.items() if len(some) == 1 and along[name]]
    # Weights over a row are as long as the row; of rows that are all of one length, that is not seen.
    places = {len(one) for one in rows}
    steady = [name for name in steady if not (name.endswith("weights") and next(iter(shapes[name]))[-1] in places)]
    observed = tuple(observed_as(name, next(iter(shapes[name]))) for name in steady)
    return Sight(observed, tuple(name for name in shapes if name not in steady))


@torch.no_grad()
def _chunks(
    specimens: Specimens, numbers: Sequence[int], observed: Sequence[Observed], progress: Progress
) -> Iterator[tuple[int, Mapping[str, Units]]]:
    names = tuple(one.name for one in observed)
    begin, waiting = 0, 0
    parts: dict[str, list[Units]] = {name: [] for name in names}
    for number in progress.over(numbers, "reading rows"):
        one = specimens.at(number)
        z_1TI = one.enter(one.x_TE[None])
        with lens(*names) as seen:
            one.read(z_1TI)
        for which in observed:
            unit_TU = torch.stack([moment[0] for moment in seen.seen[which.name]]).flatten(1).float().cpu().numpy()
            in_place_TU = np.empty_like(unit_TU)
            in_place_TU[one.seen_order(which.name, len(one))] = unit_TU
            parts[which.name].append(in_place_TU[:, which.shown])
        waiting += len(one)
        if waiting >= _CHUNK or number == numbers[-1]:  # short rows together: what comes next is slow on each
            yield begin, {name: np.concatenate(some) for name, some in parts.items()}
            begin, waiting, parts = begin + waiting, 0, {name: [] for name in names}
