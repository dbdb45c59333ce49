"""Which form a recurrent layer takes, not asked again for a call of a kind that was asked about before.

On a GPU all the reasons together take longer to find than a kernel takes to launch. So the key is everything that a
choice depends on. An error is no choice, and is found again.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from statewise.core import tool
from statewise.kernels import persistent, stepped
from statewise.kernels.chip import chip_of
from statewise.kernels.choice import Choice, Wish, note, outside


def followed(wish: Wish, lengths_B: Tensor | None) -> Wish:
    """Where rows end early, PyTorch's recurrences want to know it in numbers, which no tool that reads along has."""
    return "naive" if lengths_B is not None and tool() else wish


_taken: dict[tuple[object, ...], Choice] = {}


def taken(op: str, choose: Callable[[], Choice], weight: Tensor, *call: object) -> Choice:
    """`call` is what the choice knows of the call beyond the recurrent matrix."""
    device = weight.device
    if device.type != "cuda" or tool():
        return choose()
    dtype, chip = persistent.compute_dtype(weight), chip_of(device.index or 0)
    alike = dtype is not torch.float32 or stepped.one_precision()
    key = (op, call, weight.shape, dtype, alike, device, chip, outside(), persistent.retired(), stepped.retired())
    found = _taken.get(key)
    if found is None:
        found = _taken[key] = choose()
    else:
        note(op, found)
    return found
