"""The lab's page, written once, and a browser to open it in."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from inspected_page import opened_browser
from machines_bundle import machines_bundle

from statewise.lab import page
from statewise.lab.extra import extra


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    with opened_browser() as opened:
        yield opened


@pytest.fixture(scope="session")
def lab_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lab") / "lab.html"
    machines = machines_bundle()
    whole = {**machines, "extra": {**extra(), **machines["extra"]}}
    path.write_text(page(whole, "The lab"), encoding="utf-8")
    return path
