"""For every test: one thread a process, since several run side by side; what needs a GPU waits for one."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before anything imports torch; tiny tensors gain nothing from more

import pytest
import torch


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu") is not None:
            item.add_marker(pytest.mark.skip(reason="no CUDA device here"))
