"""Every promise names the tests that hold it, and they exist."""

import re
from pathlib import Path

_TESTS = Path(__file__).parents[1]
_NAMED = re.compile(r"`([\w/]+\.py)::(\w+)`")


def test_each_promise_has_tests_that_exist() -> None:
    page = (_TESTS.parent / "docs/reliability.md").read_text(encoding="utf-8")
    promises = page.partition("## Promises")[2].partition("## How it was tested")[0]
    rows = [line for line in promises.splitlines() if line.startswith("| ") and not line.startswith("| promise")]
    assert len(rows) > 30
    for row in rows:
        named = _NAMED.findall(row)
        assert named, f"no test: {row}"
        for file, name in named:
            assert f"def {name}(" in (_TESTS / file).read_text(encoding="utf-8"), f"{file}::{name}"
