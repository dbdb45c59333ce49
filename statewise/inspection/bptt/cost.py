"""What a gradient takes: the time of it, and the memory that its graph holds at its fullest."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import finalize

import torch
from torch import Tensor

_REPEATS = 3


class Cost(NamedTuple):
    seconds: float  # the median of a few
    held_bytes: int  # tensors that the graph kept for its way back, at the fullest moment


class _Held:
    """A tensor that a graph keeps. When the graph lets go of it, somebody is told."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


class _Meter:
    """Bytes of all memory that is held; what is held twice counts once, and what was there before not at all."""

    def __init__(self, known: set[int]) -> None:
        self._known, self._holders = known, dict[int, int]()
        self._sizes: dict[int, int] = {}
        self.now = self.most = 0

    def pack(self, tensor: Tensor) -> _Held:
        storage = tensor.untyped_storage()
        place = storage.data_ptr()
        held = _Held(tensor)
        if place not in self._known:
            if self._holders.setdefault(place, 0) == 0:
                self._sizes[place] = storage.nbytes()
                self.now += self._sizes[place]
                self.most = max(self.most, self.now)
            self._holders[place] += 1
            finalize(held, self._let_go, place)
        return held

    def unpack(self, held: _Held) -> Tensor:
        return held.tensor

    def _let_go(self, place: int) -> None:
        self._holders[place] -= 1
        if self._holders[place] == 0:
            self.now -= self._sizes[place]


def cost(compute: Callable[[], Any], *, known: list[Tensor]) -> Cost:
    """Of something that goes forward and back. `known`: what is there anyway, weights above all."""
    device = known[0].device
    compute()  # whoever has to prepare something does so before the clock runs
    seconds = []
    for _ in range(_REPEATS):
        began = _now(device)
        compute()
        seconds.append(_now(device) - began)
    meter = _Meter({one.untyped_storage().data_ptr() for one in known})
    with torch.autograd.graph.saved_tensors_hooks(meter.pack, meter.unpack):
        compute()
    return Cost(sorted(seconds)[len(seconds) // 2], meter.most)


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
