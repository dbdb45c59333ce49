"""Machines inside of what reads a row at once, made to go step by step, so that every state on the way can be asked.

That a machine's `forward` is its `step` over and over is a law, so nothing else changes.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from statewise.core import Composer, Machine, State, leaves, map_state

Visited = list[list[Tensor]]  # moment by moment: what of a state gradients flow through


def own(state: State) -> State:
    """A leaf that a step hands on unchanged is the same tensor: as a view it has a gradient of its own."""
    return map_state(lambda leaf: leaf.view_as(leaf) if leaf.requires_grad else leaf, state)


def learnt(state: State) -> list[Tensor]:
    return [leaf for _, leaf in leaves(state) if leaf.requires_grad]


@contextmanager
def walking(readers: Mapping[str, Machine[Any]]) -> Iterator[dict[str, Visited]]:
    """While it is open, each of these machines reads step by step; what it visited, by the machine's name."""
    visited: dict[str, Visited] = {}
    with ExitStack() as stack:
        for name, machine in readers.items():
            handle = machine.register_forward_hook(_stepper(name, visited))
            stack.callback(handle.remove)
        yield visited


@contextmanager
def composing(composer: Composer[Any] | None) -> Iterator[Visited]:
    """While it is open, every state that is composed can be asked; call by call, with a row for each node."""
    visited: Visited = []

    def shown(_: nn.Module, given: tuple[Any, ...], state: State) -> State:
        state = own(state)
        visited.append(learnt(state))
        return state

    handle = None if composer is None else composer.register_forward_hook(shown)
    try:
        yield visited
    finally:
        if handle is not None:
            handle.remove()


def _stepper(name: str, visited: dict[str, Visited]) -> Any:
    def read_again(machine: nn.Module, given: tuple[Any, ...], answer: Any) -> tuple[Tensor, State]:
        """In place of what was answered: the same, with a graph that goes through every state."""
        assert isinstance(machine, Machine)
        x_1TI = given[0]
        state = given[1] if len(given) > 1 and given[1] is not None else machine.init_state(len(x_1TI))
        outputs, visited[name] = [], []
        for x_t in x_1TI.unbind(1):
            y_t, state = machine.step(x_t, state)
            state = own(state)
            outputs.append(y_t)
            visited[name].append(learnt(state))
        return torch.stack(outputs, dim=1), state

    return read_again
