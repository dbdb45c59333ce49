"""From the host to a device, without either waiting for the other."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


def onto(device: torch.device, tensor: Tensor) -> Tensor:
    """On the device. To a GPU it goes by way of pinned memory; from any other, the host waits for the copy."""
    if device.type != "cuda" or tensor.device.type != "cpu":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


@contextmanager
def no_waiting() -> Iterator[None]:
    """Inside, whatever waits for a GPU raises an error."""
    mode = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that this misses some ways to wait
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(mode)
