"""The book's own modules can be imported (`chapter`, `run`, `stage`, `notebook`), and `page` of tests/docs."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from inspected_page import opened_browser

sys.path[:0] = [str(Path(__file__).parents[2] / "book"), str(Path(__file__).parents[1] / "docs")]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with opened_browser() as opened:
        yield opened
