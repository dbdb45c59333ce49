"""`pytest --cpu-seconds`: a table of tests and CPU seconds by folder, child processes included. Not with `-n`."""

import os
from collections import Counter

import pytest

COUNTS: Counter[str] = Counter()
SECONDS: Counter[str] = Counter()


def cpu_seconds() -> float:
    return sum(os.times()[:4])  # user and system, of this process and of the children it waited for


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cpu-seconds", action="store_true", help="print tests and CPU seconds by folder")


def pytest_collection_finish(session: pytest.Session) -> None:
    SECONDS["collection"] = cpu_seconds()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> object:
    folder = item.path.parent.name
    before = cpu_seconds()
    result = yield
    COUNTS[folder] += 1
    SECONDS[folder] += cpu_seconds() - before
    return result


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.getoption("--cpu-seconds"):
        rows = [(folder, COUNTS[folder], seconds) for folder, seconds in SECONDS.most_common()]
        for name, tests, seconds in [*rows, ("total", COUNTS.total(), SECONDS.total())]:
            terminalreporter.write_line(f"{name:<14}{tests:>7,} tests {seconds:>8.1f} CPU s")
