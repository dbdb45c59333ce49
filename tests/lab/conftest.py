"""The lab's page, written once, and a browser to open it in."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from inspected_page import opened_browser

from statewise.lab import page
from statewise.lab.extra import extra


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    with opened_browser() as opened:
        yield opened


@pytest.fixture(scope="session")
def lab_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lab") / "lab.html"
    path.write_text(page({"version": 1, "models": [], "extra": extra()}, "The lab"), encoding="utf-8")
    return path
