"""`pytest --cpu-seconds`: CPU seconds by folder and the dearest tests, child processes included. Not with `-n`."""

import os
from collections import Counter, defaultdict
from contextlib import suppress
from pathlib import Path

import pytest

COUNTS: Counter[str] = Counter()
SECONDS: Counter[str] = Counter()
SECONDS_OF_TEST: Counter[str] = Counter()
LISTED = 40  # tests


def own_seconds() -> float:
    return sum(os.times()[:4])  # user and system, of this process and of the children it waited for


def descendants_seconds() -> float:
    """The same of children that still run, of theirs, and so on."""
    ticks, children, left = {}, defaultdict(list), [str(os.getpid())]
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):  # ended meanwhile
            fields = path.read_text().rpartition(")")[2].split()
            ticks[path.parent.name] = sum(map(int, fields[11:15]))
            children[fields[1]].append(path.parent.name)
    for process in left:
        left += children[process]
    return sum(ticks[process] for process in left[1:]) / os.sysconf("SC_CLK_TCK")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cpu-seconds", action="store_true", help="print CPU seconds by folder and test")


def pytest_collection_finish(session: pytest.Session) -> None:
    SECONDS["collection"] = own_seconds()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> object:
    if not item.config.getoption("--cpu-seconds"):
        return (yield)
    folder, before = item.path.parent.name, descendants_seconds()
    before += own_seconds()
    result = yield
    seconds = own_seconds() - before
    seconds += descendants_seconds()
    COUNTS[folder] += 1
    SECONDS[folder] += seconds
    SECONDS_OF_TEST[item.nodeid] = seconds  # with the fixtures that it is the first to need
    return result


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.getoption("--cpu-seconds"):
        rows = [(folder, COUNTS[folder], seconds) for folder, seconds in SECONDS.most_common()]
        for name, tests, seconds in [*rows, ("total", COUNTS.total(), SECONDS.total())]:
            terminalreporter.write_line(f"{name:<14}{tests:>7,} tests {seconds:>8.1f} CPU s")
        for nodeid, seconds in SECONDS_OF_TEST.most_common(LISTED):
            terminalreporter.write_line(f"{seconds:>8.1f} CPU s  {nodeid}")
