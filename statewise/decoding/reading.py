"""Reading a prompt on a GPU as the replay of one captured pass, from the second prompt of the same shape on.

A short prompt keeps the host busy for far longer than the GPU: it launches every op of every layer. A shape that is
read once costs nothing here; one that comes again is captured, and is from then on one launch.

B batch, T time.
"""

from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from statewise.core import Machine, Replay, State, leaves, map_state
from statewise.decoding import graph

_TOKENS = 4096  # of all rows; beyond, the GPU is the one that is busy
_KEPT = 4  # passes of a model, with the memory they hold
_SEEN = 64  # shapes that are remembered

_passes: WeakKeyDictionary[Machine[Any], dict[object, "Pass"]] = WeakKeyDictionary()
# What came before, and why it cannot be captured where that was tried.
_seen: WeakKeyDictionary[Machine[Any], dict[object, str | None]] = WeakKeyDictionary()


Begin: TypeAlias = "State | None"


class Pass:
    """`absorb` in memory of its own. On CUDA it is captured; elsewhere it runs as it is written (for the tests)."""

    def __init__(self, model: Machine[Any], tokens_BT: Tensor, state: Begin) -> None:
        self.tokens_BT = tokens_BT.clone()
        self.state = None if state is None else map_state(Tensor.clone, state)
        self.after: State = ()
        # The same shape was read once before this is made: its kernels are compiled.
        self.run = Replay(lambda: self._absorb(model), tokens_BT.device, warm_up=1, compiled=True)

    def _absorb(self, model: Machine[Any]) -> None:
        self.after = model.absorb(self.tokens_BT, self.state)

    def read(self, tokens_BT: Tensor, state: Begin) -> State:
        self.tokens_BT.copy_(tokens_BT)
        if self.state is not None and state is not None:
            graph.copy_(self.state, state)
        self.run()
        return map_state(Tensor.clone, self.after)


@torch.no_grad()
def absorb(model: Machine[Any], tokens_BT: Tensor, state: Begin) -> State:
    """The state after these tokens; without a state, from the beginning."""
    if tokens_BT.numel() > _TOKENS or graph.obstacle(model, tokens_BT.device) is not None:
        return _read(model, tokens_BT, state)
    key = _key(model, tokens_BT, state)
    found = _pass(model, key, tokens_BT, state)
    if found is None:
        return _read(model, tokens_BT, state)
    after = found.read(tokens_BT, state)
    passes = _passes.setdefault(model, {})
    passes[key] = found
    while len(passes) > _KEPT:
        del passes[next(iter(passes))]
    return after


def _read(model: Machine[Any], tokens_BT: Tensor, state: Begin) -> State:
    after: State = model.absorb(tokens_BT, state)
    return after


def _key(model: Machine[Any], tokens_BT: Tensor, state: Begin) -> object:
    """What a captured pass depends on: shapes, and where the weights are."""
    shapes = None if state is None else tuple((leaf.shape, leaf.dtype) for _, leaf in leaves(state))
    return tokens_BT.shape, shapes, graph.weights(model)


def _pass(model: Machine[Any], key: object, tokens_BT: Tensor, state: Begin) -> Pass | None:
    """Until it is put back, nobody else has it. None: a shape that is new, or cannot be captured."""
    seen = _seen.setdefault(model, {})
    new, obstacle = key not in seen, seen.get(key)
    seen[key] = obstacle
    while len(seen) > _SEEN:
        del seen[next(iter(seen))]
    if new or obstacle is not None:
        return None
    found = _passes.setdefault(model, {}).pop(key, None)
    if found is None:
        try:
            found = Pass(model, tokens_BT, state)
        except RuntimeError as error:  # what CUDA says of a pass that waits for the host
            seen[key] = f"{type(model).__name__}.absorb cannot be captured: {str(error).splitlines()[0]}"
    return found
