"""What the notes say, item by item, with the section that teaches it; and questions for a test with readers."""

import csv

from chapter import BOOK, LANGUAGES, chapters, pages

ITEMS = 237
TAUGHT = 237  # grows with every chapter, and never falls


def rows(name: str) -> list[dict[str, str]]:
    return list(csv.DictReader((BOOK / name).read_text(encoding="utf-8").splitlines()))


def items() -> list[dict[str, str]]:
    return rows("items.csv")


def test_every_item_is_listed_once() -> None:
    assert [int(item["number"]) for item in items()] == list(range(1, ITEMS + 1))


def test_what_is_taught_has_a_section() -> None:
    taught = [item for item in items() if item["section"]]
    for language in LANGUAGES:
        labels = {label for page in pages(language) for label in page.labels}
        assert not [item for item in taught if item["section"] not in labels]
    assert len(taught) == TAUGHT, f"{len(taught)} of {ITEMS} items are taught; state that number here"


def test_every_chapter_has_five_questions_for_readers() -> None:
    questions = rows("questions.csv")
    expected = [str(int(page.name[:2])) for page in chapters() for _ in range(5)]
    assert [question["chapter"] for question in questions] == expected
    assert all(question["en"] and question["zh"] and question["answer"] for question in questions)
