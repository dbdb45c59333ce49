"""What a model shows of itself while it reads: every observed name at every place, chunk by chunk.

T places (tokens of a text, places of a row), U units.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from statewise.core import State, lens
from statewise.display import Progress
from statewise.inspection.gates.feature import FEATURES, Feature, Values, at_pieces, at_tokens
from statewise.specs import UserError, nearest
from statewise.tasks import Specimen, Specimens, TextSpecimens

Units = NDArray[np.float32]  # [T, U]

_CHUNK = 256  # tokens read at a time
_MOST_UNITS = 2048  # of one name
_FEW = 3  # tokens that show which names there are
_AFTER = "_after"  # the same quantity, measured again after an update
_TRIED = 2  # rows that show which names there are
_TOGETHER = 512  # places of short rows that are yielded together, at least
_AT_MOST = 4096


class Observed(NamedTuple):
    """An observed name with the same number of units at every time step."""

    name: str
    shape: tuple[int, ...]  # at a time step of one row
    shown: NDArray[np.int64]  # the units that are used: all, or some of them, evenly spaced

    @property
    def units(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    def place(self, unit: int) -> str:
        """The name with the unit's place in it: `layers.0.gru.h[17]`, `layers.0.ttt.y[2, 5]`."""
        at = np.unravel_index(int(self.shown[unit]), self.shape or (1,))
        return f"{self.name}[{', '.join(str(int(index)) for index in at)}]"


class Observable(NamedTuple):
    observed: tuple[Observed, ...]
    growing: tuple[str, ...]  # names whose shape changes with time, such as weights over a list

    @property
    def cut(self) -> list[str]:
        """Names with more units than are used, in words."""
        return [
            f"{place.name} has {place.units:,} units; {len(place.shown):,} of them, evenly spaced, were used"
            for place in self.observed
            if len(place.shown) < place.units
        ]


def observed_as(name: str, shape: tuple[int, ...]) -> Observed:
    """A name whose values at a time step have this shape."""
    units = int(np.prod(shape, dtype=np.int64))
    shown = np.unique(np.linspace(0, units - 1, min(units, _MOST_UNITS)).astype(np.int64))
    return Observed(name, shape, shown)


@torch.no_grad()
def observable(text: TextSpecimens) -> Observable:
    """Found by reading a few tokens, and then one more."""
    few_T = text.tokens_T[:_FEW].to(text.model.like.device)
    with lens() as seen:
        _, state = text.model(few_T[None])
    with lens() as later:
        text.model(few_T[None, :1], state)
    observed, growing = [], []
    for name in seen.names:
        shapes = {tuple(value.shape[1:]) for value in (*seen.seen[name], *later.seen.get(name, ()))}
        if len(shapes) > 1 or len(seen.seen[name]) != len(few_T):
            growing.append(name)
            continue
        observed.append(observed_as(name, shapes.pop()))
    return Observable(tuple(observed), tuple(growing))


@torch.no_grad()
def trace(
    text: TextSpecimens, observed: Sequence[Observed], progress: Progress, *, chunk: int = _CHUNK
) -> Iterator[tuple[int, Mapping[str, Units]]]:
    """Where each chunk begins, and every observed name in it. State is carried as the run carries it."""
    model = text.model
    tokens_T = text.tokens_T.to(model.like.device)
    names = tuple(place.name for place in observed)
    state: State = model.init_state(1)
    starts = text.fresh_starts
    chunks = [
        (begin, min(begin + chunk, stop), begin == start)
        for start, stop in zip(starts, [*starts[1:], len(tokens_T)])
        for begin in range(start, stop, chunk)
    ]
    for begin, stop, fresh in progress.over(chunks, "reading"):
        state = model.init_state(1) if fresh else state
        with lens(*names) as seen:
            _, state = model(tokens_T[None, begin:stop], state)
        yield (
            begin,
            {
                place.name: torch.stack(seen.seen[place.name]).flatten(1).float().cpu().numpy()[:, place.shown]
                for place in observed
            },
        )


def twins(names: Sequence[str]) -> list[tuple[str, str]]:
    """Names that were measured before and after an update."""
    return [(name, name + _AFTER) for name in names if name + _AFTER in names]


class Trace(NamedTuple):
    """One pass over a text or over rows: observed units, and features that they may follow."""

    observed: Sequence[Observed]
    features: Mapping[str, NDArray[np.float32]]  # of every place
    pieces: Sequence[str]
    chunks: Iterator[tuple[int, Mapping[str, Units]]]  # where each begins, and every observed name in it
    missing: tuple[str, ...]
    place: str  # what stands at a place
    text: bool = True
    first: int = 0  # places of the first row; 0: there is only one
    part: str = ""  # the part of the rows that is traced; "": all of them


def matching(observable: Observable, names: str) -> tuple[list[Observed], list[str]]:
    """The observed names that match, and what is left out."""
    observed = [place for place in observable.observed if fnmatchcase(place.name, names)]
    if not observable.observed:
        raise UserError("this model has no observed units", fix="use the lens attention")
    if not observed:
        raise UserError(
            f"no observed name matches {names!r}", fix=nearest(names, [place.name for place in observable.observed])
        )
    missing = observable.cut
    if observable.growing:
        missing.append(
            f"{', '.join(observable.growing)}: the size changes from place to place, so there are no units; see the "
            "lens attention"
        )
    return observed, missing


def trace_text(text: TextSpecimens, names: str, own: Sequence[Feature], *, tokens: int, progress: Progress) -> Trace:
    missing = []
    if len(text.tokens_T) > tokens:
        missing.append(
            f"the first {tokens:,} of {len(text.tokens_T):,} tokens were read; the setting tokens reads more"
        )
        text = text.with_tokens(text.tokens_T[:tokens])
    observed, left_out = matching(observable(text), names)
    features = at_tokens((*FEATURES, *own), text)
    return Trace(observed, features, text.names(), trace(text, observed, progress), (*missing, *left_out), "token")


def trace_rows(
    specimens: Specimens, names: str, own: Sequence[Feature], *, places: int, progress: Progress
) -> list[Trace]:
    """One trace; where parts of a row are read by parts of a model, one for each."""
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
    observed, left_out = matching(_observable(tried), names)
    missing += left_out
    by_part: dict[str, list[Observed]] = {}
    for which in observed:
        by_part.setdefault(tried[0].stretch(which.name).name, []).append(which)
    traces = []
    for part, some in by_part.items():
        traces.append(
            _trace_part(specimens, numbers, some, own, part=part, progress=progress)._replace(missing=tuple(missing))
        )
        missing = []  # said once
    return traces


def _trace_part(
    specimens: Specimens,
    numbers: Sequence[int],
    observed: Sequence[Observed],
    own: Sequence[Feature],
    *,
    part: str,
    progress: Progress,
) -> Trace:
    words = specimens.words
    between = " " if words.spaced else ""
    of_text = (*FEATURES, *own) if words.text else ()
    pieces: list[str] = []
    features: dict[str, list[Values]] = {}
    first = 0
    for number in numbers:
        row = specimens.at(number)
        _, begin, end = row.stretch(observed[0].name)
        mine = [f"{piece}{between}" for piece in row.pieces[begin:end]]
        first = first or len(mine)
        pieces += mine
        signals = {name: values_T[begin:end] for name, values_T in row.signals.items()}
        for name, values_T in {**at_pieces(of_text, mine), **signals}.items():
            features.setdefault(name, []).append(np.asarray(values_T, dtype=np.float32))
    return Trace(
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
    """Evenly spaced rows with about this many places together."""
    mean = float(np.mean([specimens.length(at) for at in np.linspace(0, len(specimens) - 1, 64).astype(int)]))
    count = max(_TRIED, int(places / max(mean, 1)))
    numbers = [int(at) for at in np.unique(np.linspace(0, len(specimens) - 1, min(count, len(specimens))).round())]
    return [at for at in numbers if specimens.length(at)]


def _varied(specimens: Specimens, numbers: Sequence[int]) -> list[int]:
    """A short row and a longer one: they show which sizes change with the row."""
    ordered = sorted(numbers, key=specimens.length)
    shortest = specimens.length(ordered[0])
    return [ordered[0], *[at for at in ordered if specimens.length(at) > shortest][:1]]


@torch.no_grad()
def _observable(rows: Sequence[Specimen]) -> Observable:
    shapes: dict[str, set[tuple[int, ...]]] = {}
    along: dict[str, bool] = {}
    for row in rows:
        steps: Counter[str] = Counter()

        def note(name: str, value: Tensor, steps: Counter[str] = steps) -> Tensor:
            shapes.setdefault(name, set()).add(tuple(value.shape[1:]))
            steps[name] += 1
            return value

        z_1TI = row.enter(row.x_TE[None])
        with lens(edit=note, keep=False):
            row.read(z_1TI)
        for name, count in steps.items():
            along[name] = along.get(name, True) and row.seen_at(name, count) is not None
    steady = [name for name, some in shapes.items() if len(some) == 1 and along[name]]
    # Weights over a row, or a part of it, are as long as that; rows of equal length do not show it.
    places = {size for row in rows for size in (len(row), *map(len, row.parts))}
    steady = [name for name in steady if not (name.endswith("weights") and next(iter(shapes[name]))[-1] in places)]
    observed = tuple(observed_as(name, next(iter(shapes[name]))) for name in steady)
    return Observable(observed, tuple(name for name in shapes if name not in steady))


@torch.no_grad()
def _chunks(
    specimens: Specimens, numbers: Sequence[int], observed: Sequence[Observed], progress: Progress
) -> Iterator[tuple[int, Mapping[str, Units]]]:
    names = tuple(place.name for place in observed)
    begin, waiting = 0, 0
    parts: dict[str, list[Units]] = {name: [] for name in names}
    for number in progress.over(numbers, "reading rows"):
        row = specimens.at(number)
        z_1TI = row.enter(row.x_TE[None])
        length = len(row.stretch(names[0]))
        units = _units(row, z_1TI, observed, length)
        for name, several in parts.items():
            several.append(units[name])
        waiting += length
        if waiting >= _TOGETHER or number == numbers[-1]:  # short rows together: each chunk has a fixed cost
            whole = {name: np.concatenate(several) for name, several in parts.items()}
            for start in range(0, waiting, _AT_MOST):
                yield begin + start, {name: unit_TU[start : start + _AT_MOST] for name, unit_TU in whole.items()}
            begin, waiting, parts = begin + waiting, 0, {name: [] for name in names}


def _units(row: Specimen, z_1TI: Tensor, observed: Sequence[Observed], length: int) -> dict[str, Units]:
    """Every name at every place, copied as it is observed: keeping all tensors of a long row would take more memory."""
    units = {which.name: np.empty((length, len(which.shown)), dtype=np.float32) for which in observed}
    shown = {which.name: which.shown for which in observed}
    places = {name: iter(row.seen_order(name, length).tolist()) for name in units}

    def put(name: str, value: Tensor) -> Tensor:
        units[name][next(places[name])] = value[0].flatten().float().cpu().numpy()[shown[name]]
        return value

    with lens(*units, edit=put, keep=False):
        row.read(z_1TI)
    return units
