"""What a model has to remember after so many tokens, in bytes: measured, not claimed."""

from typing import Any

import torch

from statewise.core import Machine, leaves, state_bytes
from statewise.models.conditional_machine import ConditionalMachine
from statewise.models.reader import Encoded

_READ = 1024  # tokens that are read at most; beyond, what was seen to be a line is followed


@torch.no_grad()
def context_bytes(model: Machine[Any], tokens: int) -> int:
    """Bytes of one row's state after `tokens` tokens.

    A state without an empty axis at the beginning has a fixed size. One that grows is measured by
    reading; for more than a few thousand tokens its growth is measured over two stretches, has to be
    the same in both, and is then followed to the end.
    """
    model = model.eval()
    initial = model.init_state(1)
    if tokens == 0 or all(leaf.numel() for _, leaf in leaves(initial)):
        return state_bytes(initial)
    if tokens <= 2 * _READ:
        return _after(model, tokens)
    one, two, three = (_after(model, n * _READ // 2) for n in (1, 2, 3))
    if two - one != three - two:
        return _after(model, tokens)
    per_token, rest = divmod(two - one, _READ // 2)
    assert rest == 0
    return one + per_token * (tokens - _READ // 2)


def _after(model: Machine[Any], tokens: int) -> int:
    generator = torch.Generator().manual_seed(0)
    state = model.init_state(1)
    for begin in range(0, tokens, _READ):
        _, state = model(model.sample_input(1, min(_READ, tokens - begin), generator=generator), state)
    return state_bytes(state)


@torch.no_grad()
def source_bytes(model: ConditionalMachine[Any], tokens: int) -> int:
    """Bytes of one row's state when a source of `tokens` tokens was read and nothing is written yet.

    What is kept of a source is the same for each of its places, so three lengths show the line.
    """

    def after(places: int) -> int:
        outputs_BSC = model.like.new_zeros(1, places, model.reader.width)
        length_B = torch.tensor([places], device=model.like.device)
        return state_bytes(model.begin(Encoded(outputs_BSC, outputs_BSC.sum(1), length_B)))

    none, one, two = (after(places) for places in range(3))
    assert two - one == one - none
    return none + tokens * (one - none)
