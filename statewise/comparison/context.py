"""What a longer context costs: bytes of state, the time of one more token, the memory of training, the longest path.

B batch.
"""

import time
from typing import Any

import torch
from torch import Tensor

from statewise.core import Machine, State, leaves, map_state
from statewise.models import ConditionalMachine, context_bytes, path, source_bytes, training_bytes
from statewise.specs import UserError

CONTEXTS = (256, 1024, 4096, 16384, 65536)
_READ = 256  # tokens that are read before a state that grows is extended
_LARGEST = 1 << 29  # bytes of a state whose step is timed
_WARM, _TIMED = 4, 32  # steps before the clock runs, and under it


def bytes_by_context(machine: Machine[Any] | None, *, also: int = CONTEXTS[0]) -> dict[int, int]:
    """Bytes of state of one row by the tokens it has read (of the source, for a model with an encoder)."""
    if machine is None:
        return {}
    sizes = {}
    for context in sorted({also, *CONTEXTS}):
        try:
            if isinstance(machine, ConditionalMachine):
                sizes[context] = source_bytes(machine, context)
            else:
                sizes[context] = context_bytes(machine, context)
        except UserError:
            break  # it cannot read so many
    return sizes


def training_by_context(machine: Machine[Any] | None) -> dict[int, int] | None:
    """Bytes that training on one row of so many tokens keeps for the backward pass."""
    if machine is None or isinstance(machine, ConditionalMachine):
        return None
    sizes = {}
    for context in CONTEXTS:
        try:
            sizes[context] = training_bytes(machine, context)
        except UserError:
            break  # it cannot read so many
    return sizes


def longest_path(machine: Machine[Any] | None, *, reach: int | None) -> str | None:
    """How the path between two tokens grows with their distance N; `none`: between distant ones there is none."""
    if machine is None or isinstance(machine, ConditionalMachine):
        return None
    return "none" if reach is not None and reach < CONTEXTS[-1] else path(machine)


@torch.no_grad()
def seconds_by_context(machine: Machine[Any] | None) -> dict[int, float] | None:
    """To read one more token of one row after so many. A state of fixed size is timed once: the work is the same."""
    if machine is None or isinstance(machine, ConditionalMachine):
        return None
    initial = machine.eval().init_state(1)
    if all(leaf.numel() for _, leaf in leaves(initial)):
        return dict.fromkeys(CONTEXTS, _seconds(machine, _read(machine)))
    sizes, seconds = bytes_by_context(machine), {}
    for context in CONTEXTS:
        try:
            if sizes.get(context, _LARGEST) < _LARGEST:
                seconds[context] = _seconds(machine, extended_state(machine, context))
        except UserError:
            break
    return seconds


def _read(machine: Machine[Any]) -> State:
    state: State = machine.absorb(machine.sample_input(1, _READ, generator=torch.Generator().manual_seed(0)))
    return state


def extended_state(machine: Machine[Any], context: int) -> State:
    """A state as large as after `context` tokens, without reading them: caches are repeated, counters are set.

    It stands for no real text, but a step from it costs the same.
    """

    def extended(leaf: Tensor, empty: Tensor) -> Tensor:
        if not leaf.is_floating_point():
            return torch.where(leaf == _READ, context, leaf)
        for axis, size in enumerate(empty.shape):
            if size == 0:
                repeats = [1] * leaf.dim()
                repeats[axis] = context // _READ
                return leaf.repeat(repeats)
        return leaf

    state: State = map_state(extended, _read(machine), machine.init_state(1))
    return state


def _seconds(machine: Machine[Any], state: State) -> float:
    state, room = machine.reserve(state, _WARM + _TIMED)
    step = machine.step_ if room == _WARM + _TIMED else machine.step
    token_B = machine.sample_input(1, 1, generator=torch.Generator().manual_seed(1))[:, 0]
    for number in range(_WARM + _TIMED):
        if number == _WARM:
            began = _now(machine)
        _, state = step(token_B, state)
    return (_now(machine) - began) / _TIMED


def _now(machine: Machine[Any]) -> float:
    if machine.like.device.type == "cuda":
        torch.cuda.synchronize(machine.like.device)
    return time.perf_counter()
