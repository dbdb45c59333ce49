"""Translation: files as newcomers bring them, and what each verb makes of them."""

from pathlib import Path

import pytest
from task_inputs import HALF, LONG, PAIRS, SCRIPTS, Case, trained, try_case


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("runs"), "translation")


CASES = [
    *(
        case
        for script, (good, bad, text) in SCRIPTS.items()
        for case in (
            Case("train", script, f"{text}\t{good}\n{good} {bad}\t{bad}\n" * 4, None),
            Case("predict", script, f"{text}\n\n{good}\n", 3, file="new.txt"),
        )
    ),
    Case("train", "one pair", "a\tb\n", ("cannot be split",)),
    Case("train", "one source", "a\tb\n" * 8, ("cannot be split",)),
    Case("train", "one target", "".join(f"{i}\tb\n" for i in range(12)), None),
    Case("train", "long", "a b\tc\nb\tc\nc\td\n" * 2 + f"x {LONG}\t{LONG}\ny\tz\n", None, HALF),
    Case("train", "one column", "a\nb\n", ("pairs.tsv line 1", "no column 1")),
    Case("train", "one side", "a\tb\nc\t\n", ("pairs.tsv line 2", "target is empty")),
    Case("train", "one plain file", "a\nb\n", ("pairs.txt", "--data"), file="pairs.txt"),
    Case("train", "stdin", PAIRS, ("standard input",), file="-"),
    Case("evaluate", "unseen words", "wo bist du\twhere are you\n", None),
    Case("evaluate", "unlabelled", "wo bist du\n", ("pairs.tsv line 1", "no column 1")),
    Case("predict", "gaps", "eine Katze\tx\n\n\ndie Katze\ty\n", 4),
    Case("predict", "unlabelled", "eine Katze\ndie\n", 2),
    Case("predict", "long", f"eine\n{LONG}\n\ndie\n", 4, file="new.txt"),
    Case("predict", "stdin", "eine\n\ndie", 3, file="-"),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_whatever_it_holds(case: Case, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    try_case("translation", case, runs, tmp_path, monkeypatch)
