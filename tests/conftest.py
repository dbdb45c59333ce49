"""For every test: one thread a process, since several run side by side; what needs a GPU waits for one."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before anything imports torch; tiny tensors gain nothing from more
os.environ.setdefault("HF_HUB_OFFLINE", "1")  # before anything imports datasets, which would retry for half a minute

import gc
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import task_runs
import torch
from _pytest.mark.structures import get_unpacked_marks
from inspected_page import opened_browser

from statewise.disk import locked

pytest_plugins = ["cpu_seconds"]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collection makes a million objects that stay: looking for garbage among them took 40 % of its time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
        gc.set_threshold(50_000)  # 700 by default: to look so often was a tenth of tracing a model


@pytest.mark.gpu
@pytest.mark.skip(reason="no CUDA device here")
def needs_gpu() -> None:
    """Stands for a GPU test, whatever its parameters, where there is no GPU."""


def pytest_pycollect_makeitem(collector: pytest.Module | pytest.Class, name: str, obj: Any) -> pytest.Item | None:
    """One skipped item per GPU test function where there is no GPU, instead of one per parameter set."""
    if torch.cuda.is_available() or not inspect.isfunction(obj) or not name.startswith("test_"):
        return None
    marks = [mark.name for mark in get_unpacked_marks(obj)] + [mark.name for mark in collector.iter_markers()]
    return pytest.Function.from_parent(collector, name=name, callobj=needs_gpu) if "gpu" in marks else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The same for single parameters that need a GPU."""
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu") is not None:
                item.add_marker(pytest.mark.skip(reason="no CUDA device here"))


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`shared(name, make)`: a folder that one of the processes of `pytest -n` makes, while the others wait."""
    own = tmp_path_factory.getbasetemp()

    def folder(name: str, make: Callable[[Path], object], *, patience: float = 60) -> Path:
        made = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / name
        made.mkdir(exist_ok=True)
        with locked(made, wait=True, patience=patience):
            if not (made / "made").exists():
                make(made)
                (made / "made").touch()
        return made

    return folder


@pytest.fixture(scope="session")
def tasks(shared: Callable[..., Path]) -> Path:
    """A folder with files for every task, in which `make_run` trains each run once for all tests, which change none."""
    return shared("tasks", task_runs.write_files)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """One for all folders: Playwright runs once in a process."""
    with opened_browser() as opened:
        yield opened
