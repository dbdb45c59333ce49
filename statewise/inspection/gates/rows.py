"""The walk along rows, one after the other, of whatever answers row by row.

T places of a row, U units.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from statewise.core import lens
from statewise.inspection.gates.feature import FEATURES, Feature, Values, at_pieces
from statewise.inspection.gates.trace import Observed, Sight, Units, observed_as
from statewise.inspection.gates.walk import Walk, matching
from statewise.inspection.progress import Progress
from statewise.specs import UserError
from statewise.tasks import Specimen, Specimens

_TRIED = 2  # rows that show which names there are
_CHUNK = 512  # places that are handed on together, at the least
_PIECE = 4096  # and at the most


def walk_rows(
    specimens: Specimens, names: str, own: Sequence[Feature], *, places: int, progress: Progress
) -> list[Walk]:
    """One walk; where parts of a row are read by parts of a model, one along each."""
    words = specimens.words
    if own and not words.text:
        raise UserError(
            f"features = {own[0].name!r} needs a text, but this run reads {words.place}s", fix="leave features out"
        )
    numbers = _enough(specimens, places)
    missing = []
    if len(numbers) < len(specimens):
        missing.append(
            f"{len(numbers):,} of {len(specimens):,} rows were read, evenly spaced; the setting tokens reads more"
        )
    tried = [specimens.at(number) for number in _varied(specimens, numbers)]
    observed, left_out = matching(_sight(tried), names)
    missing += left_out
    by_part: dict[str, list[Observed]] = {}
    for which in observed:
        by_part.setdefault(tried[0].stretch(which.name).name, []).append(which)
    walks = []
    for part, some in by_part.items():
        walks.append(
            _walk(specimens, numbers, some, own, part=part, progress=progress)._replace(missing=tuple(missing))
        )
        missing = []  # said once
    return walks


def _walk(
    specimens: Specimens,
    numbers: Sequence[int],
    observed: Sequence[Observed],
    own: Sequence[Feature],
    *,
    part: str,
    progress: Progress,
) -> Walk:
    words = specimens.words
    between = " " if words.spaced else ""
    told = (*FEATURES, *own) if words.text else ()
    pieces: list[str] = []
    features: dict[str, list[Values]] = {}
    first = 0
    for number in numbers:
        one = specimens.at(number)
        _, begin, end = one.stretch(observed[0].name)
        mine = [f"{piece}{between}" for piece in one.pieces[begin:end]]
        first = first or len(mine)
        pieces += mine
        signals = {name: values_T[begin:end] for name, values_T in one.signals.items()}
        for name, values_T in {**at_pieces(told, mine), **signals}.items():
            features.setdefault(name, []).append(np.asarray(values_T, dtype=np.float32))
    return Walk(
        observed,
        {name: np.concatenate(parts) for name, parts in features.items()},
        pieces,
        _chunks(specimens, numbers, observed, progress),
        (),
        words.place,
        text=words.text or words.place == "node",
        first=first,
        part=part,
    )


def _enough(specimens: Specimens, places: int) -> list[int]:
    """Rows from all over, so many that they have about so many places together."""
    mean = float(np.mean([specimens.length(at) for at in np.linspace(0, len(specimens) - 1, 64).astype(int)]))
    count = max(_TRIED, int(places / max(mean, 1)))
    found = [int(at) for at in np.unique(np.linspace(0, len(specimens) - 1, min(count, len(specimens))).round())]
    return [at for at in found if specimens.length(at)]


def _varied(specimens: Specimens, numbers: Sequence[int]) -> list[int]:
    """A short row and one that is longer: what changes its size with the row is seen on them."""
    ordered = sorted(numbers, key=specimens.length)
    shortest = specimens.length(ordered[0])
    return [ordered[0], *[at for at in ordered if specimens.length(at) > shortest][:1]]


@torch.no_grad()
def _sight(rows: Sequence[Specimen]) -> Sight:
    shapes: dict[str, set[tuple[int, ...]]] = {}
    along: dict[str, bool] = {}
    for one in rows:
        moments: Counter[str] = Counter()

        def note(name: str, value: Tensor, moments: Counter[str] = moments) -> Tensor:
            shapes.setdefault(name, set()).add(tuple(value.shape[1:]))
            moments[name] += 1
            return value

        z_1TI = one.enter(one.x_TE[None])
        with lens(edit=note, keep=False):
            one.read(z_1TI)
        for name, count in moments.items():
            along[name] = along.get(name, True) and one.seen_at(name, count) is not None
    steady = [name for name, some in shapes.items() if len(some) == 1 and along[name]]
    # Weights over a row, or a part of it, are as long as that; of rows that are all of one length, that is not seen.
    places = {size for one in rows for size in (len(one), *map(len, one.parts))}
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
        length = len(one.stretch(names[0]))
        found = _written(one, z_1TI, observed, length)
        for name, several in parts.items():
            several.append(found[name])
        waiting += length
        if waiting >= _CHUNK or number == numbers[-1]:  # short rows together: what comes next is slow on each
            whole = {name: np.concatenate(several) for name, several in parts.items()}
            for start in range(0, waiting, _PIECE):
                yield begin + start, {name: unit_TU[start : start + _PIECE] for name, unit_TU in whole.items()}
            begin, waiting, parts = begin + waiting, 0, {name: [] for name in names}


def _written(one: Specimen, z_1TI: Tensor, observed: Sequence[Observed], length: int) -> dict[str, Units]:
    """Every name at every place, put there as it passes: of a long row the moments would take more than the numbers."""
    found = {which.name: np.empty((length, len(which.shown)), dtype=np.float32) for which in observed}
    shown = {which.name: which.shown for which in observed}
    places = {name: iter(one.seen_order(name, length).tolist()) for name in found}

    def put(name: str, value: Tensor) -> Tensor:
        found[name][next(places[name])] = value[0].flatten().float().cpu().numpy()[shown[name]]
        return value

    with lens(*found, edit=put, keep=False):
        one.read(z_1TI)
    return found
