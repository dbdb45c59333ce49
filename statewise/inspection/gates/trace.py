"""What a model shows of itself while it reads a text: every observed name, moment by moment, chunk by chunk.

T time, U units.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from statewise.core import Machine, State, lens
from statewise.inspection.freshness import fresh_starts
from statewise.inspection.progress import Progress
from statewise.inspection.reading import Reading

Units = NDArray[np.float32]  # [T, U]

_CHUNK = 256  # tokens read at a time
_MOST_UNITS = 2048  # of one name
_FEW = 3  # tokens that show which names there are
_AFTER = "_after"  # a name that ends so is its namesake's, measured again after an update


class Observed(NamedTuple):
    """A name that a model shows the same number of units of at every moment."""

    name: str
    shape: tuple[int, ...]  # at a moment of one row
    shown: NDArray[np.int64]  # which units are looked at: all, or so many of them, evenly spaced

    @property
    def units(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    def place(self, unit: int) -> str:
        """The name with the unit's place in it: `layers.0.gru.h[17]`, `layers.0.ttt.y[2, 5]`."""
        at = np.unravel_index(int(self.shown[unit]), self.shape or (1,))
        return f"{self.name}[{', '.join(str(int(one)) for one in at)}]"


class Sight(NamedTuple):
    observed: tuple[Observed, ...]
    growing: tuple[str, ...]  # names whose shape changes with time, such as weights over a list

    @property
    def cut(self) -> list[str]:
        """Names with more units than are looked at, in words."""
        return [
            f"{one.name} has {one.units:,} units; {len(one.shown):,} of them, evenly spaced, were looked at"
            for one in self.observed
            if len(one.shown) < one.units
        ]


def observed_as(name: str, shape: tuple[int, ...]) -> Observed:
    """A name whose values at a moment have this shape."""
    units = int(np.prod(shape, dtype=np.int64))
    shown = np.unique(np.linspace(0, units - 1, min(units, _MOST_UNITS)).astype(np.int64))
    return Observed(name, shape, shown)


@torch.no_grad()
def sight(model: Machine[Any], reading: Reading) -> Sight:
    """What there is to see, found by reading a few tokens, and then one more."""
    few_T = reading.tokens_T[:_FEW].to(model.like.device)
    with lens() as seen:
        _, state = model(few_T[None])
    with lens() as later:
        model(few_T[None, :1], state)
    observed, growing = [], []
    for name in seen.names:
        shapes = {tuple(value.shape[1:]) for value in (*seen.seen[name], *later.seen.get(name, ()))}
        if len(shapes) > 1 or len(seen.seen[name]) != len(few_T):
            growing.append(name)
            continue
        observed.append(observed_as(name, shapes.pop()))
    return Sight(tuple(observed), tuple(growing))


@torch.no_grad()
def trace(
    model: Machine[Any], reading: Reading, observed: Sequence[Observed], progress: Progress, *, chunk: int = _CHUNK
) -> Iterator[tuple[int, Mapping[str, Units]]]:
    """Where each chunk begins, and every observed name in it. State is carried as the run carries it."""
    tokens_T = reading.tokens_T.to(model.like.device)
    names = tuple(one.name for one in observed)
    state: State = model.init_state(1)
    for begin, stop, fresh in progress.over(chunks(model, reading, chunk=chunk), "reading"):
        state = model.init_state(1) if fresh else state
        with lens(*names) as seen:
            _, state = model(tokens_T[None, begin:stop], state)
        yield (
            begin,
            {
                one.name: torch.stack(seen.seen[one.name]).flatten(1).float().cpu().numpy()[:, one.shown]
                for one in observed
            },
        )


def chunks(model: Machine[Any], reading: Reading, *, chunk: int) -> list[tuple[int, int, bool]]:
    """Begin and end of each stretch that is read at once, and whether the state is fresh there."""
    starts = [int(at) for at in fresh_starts(model, reading)]
    return [
        (begin, min(begin + chunk, stop), begin == start)
        for start, stop in zip(starts, [*starts[1:], len(reading)])
        for begin in range(start, stop, chunk)
    ]


def twins(names: Sequence[str]) -> list[tuple[str, str]]:
    """Names that were measured before and after an update."""
    return [(name, name + _AFTER) for name in names if name + _AFTER in names]
