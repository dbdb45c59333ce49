"""A row as a reader reads it: shared by all tasks that have one.

N copies of a row, T places, E width of what enters, I of what is read, C of what reading gives.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from statewise.core import Machine
from statewise.encoders.bidirectional import seen_backwards
from statewise.models.reader import Encoded, Reader
from statewise.tasks.specimen import Index


class ReaderParts(NamedTuple):
    reader: Reader

    @property
    def machine(self) -> Machine[Any] | None:
        return self.reader.layers.machine

    def enter(self, x_NTE: Tensor) -> Tensor:
        return self.reader.admit(x_NTE)

    def read(self, z_NTI: Tensor) -> Tensor:
        return self.reader.read(z_NTI).outputs_BSC

    def encoded(self, y_NTC: Tensor) -> Encoded:
        lengths_N = torch.full((len(y_NTC),), y_NTC.shape[1], device=y_NTC.device)
        return self.reader.encoded(y_NTC, lengths_N)


def seen_order(name: str, places: int) -> Index:
    """Of two directions, one begins at the end."""
    return np.arange(places)[::-1] if seen_backwards(name) else np.arange(places)
