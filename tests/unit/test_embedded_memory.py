"""Questions about memory: every answer is found again by somebody who solves the question another way."""

from collections.abc import Callable

import pytest

from statewise.data.embedded import MEMORY_TASKS, MemoryRow

CLOSES = {"(": ")", "[": "]", "{": "}"}


def copied(row: MemoryRow) -> list[tuple[str, int]]:
    at = row.symbols.index(">")
    return [(row.symbols[i], at + 1) for i in range(at)]


def turned(row: MemoryRow) -> list[tuple[str, int]]:
    at = row.symbols.index(">")
    places = range(at + 1, 2 * at + 1)
    return [(row.symbols[i], place - i) for i, place in zip(reversed(range(at)), places)]


def odd(row: MemoryRow) -> list[tuple[str, int]]:
    at = row.symbols.index("=")
    return [("1" if row.symbols[:at].count("1") % 2 else "0", at + 1)]


def closed(row: MemoryRow) -> list[tuple[str, int]]:
    """By rewriting: an innermost pair is taken out until nothing is left."""
    left = list(enumerate(row.symbols))
    found = {}
    while left:
        at = next(i for i in range(len(left) - 1) if CLOSES.get(left[i][1]) == left[i + 1][1])
        (begin, first), (end, _) = left[at], left[at + 1]
        found[end] = (CLOSES[first], end - begin)
        del left[at : at + 2]
    return [found[end] for end in sorted(found)]


def recalled(row: MemoryRow) -> list[tuple[str, int]]:
    *shown, ask, key, _ = row.symbols
    assert ask == "?"
    pairs = [(shown[i], shown[i + 1], i + 1) for i in range(0, len(shown), 2) if shown[i] != "."]
    return [(value, len(row.symbols) - 1 - at) for name, value, at in pairs if name == key]


def followed(row: MemoryRow) -> list[tuple[str, int]]:
    *shown, asked, _ = row.symbols
    (at,) = [i for i, symbol in enumerate(shown[:-1]) if symbol == asked]
    return [(shown[at + 1], len(shown) - at)]


SOLVERS: dict[str, Callable[[MemoryRow], list[tuple[str, int]]]] = {
    "copy": copied,
    "reverse": turned,
    "parity": odd,
    "dyck": closed,
    "recall": recalled,
    "induction": followed,
}


def test_every_question_has_a_solver() -> None:
    assert SOLVERS.keys() == MEMORY_TASKS.keys()


@pytest.mark.parametrize("name", MEMORY_TASKS)
def test_answers_are_right_and_their_distances_too(name: str) -> None:
    task = MEMORY_TASKS[name]
    rows = task.rows(shortest=max(task.least, 2), longest=40, count=300, seed=3)
    assert len(rows) == 300
    for row in rows:
        found = [(row.symbols[place], distance) for place, distance in zip(row.places, row.distances, strict=True)]
        assert found == SOLVERS[name](row), row
        assert set(row.symbols) <= set(task.symbols)
        assert {row.symbols[place] for place in row.places} <= set(task.options)
    assert len(task.symbols) == len(set(task.symbols))


@pytest.mark.parametrize("name", MEMORY_TASKS)
def test_rows_are_a_function_of_the_seed(name: str) -> None:
    task = MEMORY_TASKS[name]
    one, same, other = (task.rows(shortest=4, longest=9, count=40, seed=seed) for seed in (1, 1, 2))
    assert one == same
    assert one != other


@pytest.mark.parametrize("name", MEMORY_TASKS)
def test_no_answer_is_favoured(name: str) -> None:
    task = MEMORY_TASKS[name]
    rows = task.rows(shortest=6, longest=12, count=3000, seed=0)
    answers = [row.symbols[place] for row in rows for place in row.places]
    share = {option: answers.count(option) / len(answers) for option in task.options}
    assert max(share.values()) < 1.25 * task.chance
    assert min(share.values()) > 0.75 * task.chance


def test_distances_of_recall_ask_different_things() -> None:
    """Rows of different distances must not be the same row with other pauses."""
    rows = MEMORY_TASKS["recall"].rows(shortest=0, longest=7, count=400, seed=0)
    assert len({tuple(symbol for symbol in row.symbols if symbol != ".") for row in rows}) == 400
