"""Tagging: files as newcomers bring them, and what each verb makes of them."""

from pathlib import Path

import pytest
from task_inputs import HALF, SCRIPTS, SENTENCES, Case, trained, try_case


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("runs"), "tagging")


def tagged(*sentences: list[tuple[str, str]]) -> str:
    return "".join("".join(f"{word} {tag}\n" for word, tag in one) + "\n" for one in sentences)


CASES = [
    *(
        case
        for script, (good, bad, text) in SCRIPTS.items()
        for case in (
            Case("train", script, tagged(*[[(word, good) for word in text.split()], [(bad, bad)]] * 4), None),
            Case("predict", script, tagged([(word, good) for word in text.split()]), len(text.split()) + 1),
        )
    ),
    Case("train", "one sentence", tagged([("a", "A")]), ("cannot", "more examples")),
    Case("train", "one tag", tagged(*[[("a", "A"), ("b", "A")]] * 8), None),
    Case("train", "long", tagged(*[[("a", "A")] * 5000, [("b", "B")]] * 2), None, {**HALF, "data.longest": "64"}),
    Case("train", "numbers", tagged(*[[("1", "0"), ("2", "1")]] * 8), None),
    Case("train", "no tag", "Anna N\nsleeps\n\n", ("words.txt line 2",)),
    Case("train", "stdin", SENTENCES, ("standard input",), file="-"),
    Case("evaluate", "unseen tag", tagged([("Anna", "X"), ("sleeps", "V")]), None),
    Case("evaluate", "unlabelled", "Anna\nsleeps\n", ("words.txt line 1",)),
    Case("predict", "unlabelled", "Anna\nsleeps\n\n\n\nwell", 6),
    Case("predict", "long", "\n".join(["well"] * 5000) + "\n", 5000),
    Case("predict", "stdin", "Anna\nsleeps\n", 2, file="-"),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_whatever_it_holds(case: Case, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    try_case("tagging", case, runs, tmp_path, monkeypatch)
