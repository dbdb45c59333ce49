"""The table of what the notes say: every item is there once, and those with a section are taught in both languages."""

import csv

from chapter import BOOK, LANGUAGES, pages

ITEMS = 237
TAUGHT = 188  # grows with every chapter, and never falls


def items() -> list[dict[str, str]]:
    return list(csv.DictReader((BOOK / "items.csv").read_text(encoding="utf-8").splitlines()))


def test_every_item_is_listed_once() -> None:
    assert [int(item["number"]) for item in items()] == list(range(1, ITEMS + 1))


def test_what_is_taught_has_a_section() -> None:
    taught = [item for item in items() if item["section"]]
    for language in LANGUAGES:
        labels = {label for page in pages(language) for label in page.labels}
        assert not [item for item in taught if item["section"] not in labels]
    assert len(taught) == TAUGHT, f"{len(taught)} of {ITEMS} items are taught; state that number here"
