"""A row as a reader reads it: shared by all tasks that have one.

N copies of a row, T places, E width of what enters, I of what is read, C of what reading gives.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from statewise.core import Machine
from statewise.encoders import seen_backwards
from statewise.models import Encoded, Reader
from statewise.tasks.specimen import Index


class ReaderParts(NamedTuple):
    reader: Reader

    @property
    def machine(self) -> Machine[Any] | None:
        return self.reader.layers.machine

    @property
    def readers(self) -> dict[str, Machine[Any]]:
        """Where no one machine reads a row from its front: those that each read it their own way."""
        return {} if self.machine is not None else machines_in(self.reader)

    def enter(self, x_NTE: Tensor) -> Tensor:
        return self.reader.admit(x_NTE)

    def read(self, z_NTI: Tensor) -> Tensor:
        return self.reader.read(z_NTI).outputs_BSC

    def encoded(self, y_NTC: Tensor) -> Encoded:
        lengths_N = torch.full((len(y_NTC),), y_NTC.shape[1], device=y_NTC.device)
        return self.reader.encoded(y_NTC, lengths_N)


def machines_in(reader: Reader) -> dict[str, Machine[Any]]:
    """Every machine that reads places and is no part of another, by its path. What reads letters of a word does not."""
    found: dict[str, Machine[Any]] = {}
    for path, part in reader.layers.named_modules(prefix="reader"):
        if isinstance(part, Machine) and not any(path.startswith(f"{other}.") for other in found):
            found[path] = part
    return found


def seen_order(name: str, places: int) -> Index:
    """Of two directions, one begins at the end."""
    return np.arange(places)[::-1] if seen_backwards(name) else np.arange(places)
