"""The lab's page, written once."""

from pathlib import Path

import pytest
from machines_bundle import machines_bundle

from statewise.lab import page
from statewise.lab.extra import extra


@pytest.fixture(scope="session")
def lab_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lab") / "lab.html"
    machines = machines_bundle()
    whole = {**machines, "extra": {**extra(), **machines["extra"]}}
    path.write_text(page(whole, "The lab"), encoding="utf-8")
    return path
