"""A token stream that lies on the device: a step sends it where to read, not what.

B rows, T time steps.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from statewise.core import onto
from statewise.data.batch import Place

LARGEST = 1 << 28  # bytes of a stream that is kept on a device


class Resident:
    def __init__(self, tokens: NDArray[np.unsignedinteger], *, end_id: int, device: torch.device) -> None:
        # PyTorch can index signed numbers everywhere, unsigned ones not; the mask takes the sign away again.
        signed: NDArray[np.signedinteger] = np.array(tokens).view(f"i{tokens.dtype.itemsize}")
        self._tokens, self._mask = torch.from_numpy(signed).to(device), int(np.iinfo(tokens.dtype).max)
        self._positions, self._end_id = len(tokens) - 1, end_id
        self._begins = np.flatnonzero(tokens[:-1] == end_id)  # where documents do

    def begins_documents(self, place: Place) -> bool:
        """Whether a document begins inside of any row: known on the host, without a look at the tokens."""
        first_B = place.starts_B % self._positions
        last_B = first_B + place.length
        around_B = np.searchsorted(self._begins, np.stack([first_B, last_B, last_B - self._positions]))
        within = around_B[1] > around_B[0]
        again = (last_B > self._positions) & (around_B[2] > 0)  # the stream is a ring
        return bool((within | again).any())

    def starts(self, place: Place) -> Tensor:
        """Where each row begins, on the device."""
        return onto(self._tokens.device, torch.from_numpy(place.starts_B % self._positions))

    def read(self, starts_B: Tensor, times: slice) -> tuple[Tensor, Tensor]:
        """Inputs and targets `[B, T]` at some times after the starts."""
        times_T = torch.arange(times.start, times.stop, device=starts_B.device)
        at_BT = (starts_B[:, None] + times_T) % self._positions
        inputs_BT, targets_BT = (self._tokens[at].long() & self._mask for at in (at_BT, at_BT + 1))
        return inputs_BT, targets_BT
