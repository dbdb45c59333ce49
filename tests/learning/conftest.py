"""Losses that are reached in so many steps were measured with one thread: more add in another order."""

import pytest
import torch


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)
