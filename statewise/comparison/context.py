"""What a longer past costs: bytes of state, and the time of one more token.

B batch.
"""

import time
from typing import Any

import torch
from torch import Tensor, nn

from statewise.core import Machine, State, leaves, map_state
from statewise.models import (
    Classifier,
    ConditionalMachine,
    DirectForecaster,
    OneWay,
    Reader,
    RecursiveForecaster,
    Tagger,
    context_bytes,
    source_bytes,
)
from statewise.specs import UserError

CONTEXTS = (256, 1024, 4096, 16384, 65536)
_READ = 256  # tokens that a state which grows is read from before it is drawn out
_LARGEST = 1 << 29  # bytes of a state whose step is timed
_WARM, _TIMED = 4, 32  # steps before the clock runs, and under it: more than any machine's rhythm


def machine_in(model: nn.Module) -> Machine[Any] | None:
    """What remembers: the model itself, or what it reads with from the first position to the last."""
    match model:
        case Machine():
            return model
        case (
            Classifier(reader=Reader(layers=OneWay(stack=stack)))
            | Tagger(reader=Reader(layers=OneWay(stack=stack)))
            | DirectForecaster(reader=Reader(layers=OneWay(stack=stack)))
        ):
            return stack
        case RecursiveForecaster(machine=machine):
            return machine
        case _:
            return None


def bytes_by_context(model: nn.Module, *, also: int = CONTEXTS[0]) -> dict[int, int]:
    """Of one row by the tokens it has read (of the source, where one sequence becomes another)."""
    machine, found = machine_in(model), {}
    for context in sorted({also, *CONTEXTS}):
        try:
            if isinstance(machine, ConditionalMachine):
                found[context] = source_bytes(machine, context)
            elif machine is not None:
                found[context] = context_bytes(machine, context)
        except UserError:
            break  # it has no place for so many
    return found


@torch.no_grad()
def seconds_by_context(model: nn.Module) -> dict[int, float] | None:
    """To read one more token of one text after so many. A state of fixed size is timed once: it does the same work."""
    machine = machine_in(model)
    if machine is None or isinstance(machine, ConditionalMachine):
        return None
    initial = machine.eval().init_state(1)
    if all(leaf.numel() for _, leaf in leaves(initial)):
        return dict.fromkeys(CONTEXTS, _seconds(machine, _read(machine)))
    sizes = bytes_by_context(machine)
    found = {}
    for context in CONTEXTS:
        try:
            if sizes.get(context, _LARGEST) < _LARGEST:
                found[context] = _seconds(machine, drawn_out(machine, context))
        except UserError:
            break
    return found


def _read(machine: Machine[Any]) -> State:
    state: State = machine.absorb(machine.sample_input(1, _READ, generator=torch.Generator().manual_seed(0)))
    return state


def drawn_out(machine: Machine[Any], context: int) -> State:
    """As large as after `context` tokens, without reading them: its lists repeat themselves, its counters say so.

    What such a state means is no text; what a step from it costs is the same.
    """

    def drawn(leaf: Tensor, empty: Tensor) -> Tensor:
        if not leaf.is_floating_point():
            return torch.where(leaf == _READ, context, leaf)
        for axis, size in enumerate(empty.shape):
            if size == 0:
                repeats = [1] * leaf.dim()
                repeats[axis] = context // _READ
                return leaf.repeat(repeats)
        return leaf

    state: State = map_state(drawn, _read(machine), machine.init_state(1))
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
