"""Trees: files as newcomers bring them, and what each verb makes of them."""

from pathlib import Path

import pytest
from task_inputs import SCRIPTS, TREES, Case, trained, try_case


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("runs"), "tree")


CASES = [
    *(
        case
        for script, (good, bad, text) in SCRIPTS.items()
        for case in (
            Case("train", script, f"({good} ({bad} {text.split()[0]}) ({good} x))\n({bad} {good})\n" * 6, None),
            Case("predict", script, f"({good} ({bad} {text.split()[0]}) ({good} x))\n\n({bad} {good})\n", 3),
        )
    ),
    Case("train", "one tree", "(1 a)\n", ("cannot",)),
    Case("train", "one label", "(1 (1 a) (1 b))\n" * 8, None),
    Case("train", "open", "(1 (0 a)\n", ("trees.txt line 1", "never closed")),
    Case("train", "closed twice", "(1 a))\n", ("trees.txt line 1", "closes no bracket")),
    Case("train", "words alone", "a warm film\n", ("trees.txt line 1", "outside any tree")),
    Case("train", "no word", "(1 a)\n(1 ())\n", ("trees.txt line 2",)),
    Case("train", "stdin", TREES, ("standard input",), file="-"),
    Case("evaluate", "unseen label", "(7 (1 not) (0 warm))\n", None),
    Case("predict", "long", f"(1 {'(1 a) ' * 5000})\n\n(1 a)\n", 3),
    Case("predict", "two on a line", "(1 a) (1 b)\n", 2),
    Case("predict", "stdin", "(1 a)\n\n(0 b)\n", 3, file="-"),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_whatever_it_holds(case: Case, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    try_case("tree", case, runs, tmp_path, monkeypatch)
