"""Copying and recall at ten times the trained length: the data are what they say, and one family of each holds."""

from pathlib import Path
from typing import Any

import pytest

import statewise as sw
from statewise.data.embedded import recall
from statewise.specs import PairDataSpec, UserError, load_published, make_spec
from statewise.tasks.translation.reading import read_split


def test_row_e10_held_out_texts_have_ten_times_the_letters() -> None:
    train, held = read_split(PairDataSpec(embedded="reverse", longer=10), seed=4)
    assert {len(source.split()) for source in train.sources} == set(range(2, 11))
    assert {len(source.split()) for source in held.sources} == {100}
    assert all(target.split() == source.split()[::-1] for source, target in zip(held.sources, held.targets))
    as_trained = read_split(PairDataSpec(embedded="copy"), seed=4)[1]
    assert max(len(source.split()) for source in as_trained.sources) == 10


def test_row_e10_recall_asks_from_ten_times_as_far() -> None:
    made = recall(distance=5, longer=10, count=300, held=20)
    assert {row.text.count(".") for row in made.held} == {50}
    assert {row.text.count(".") for row in made.train} == set(range(6))


@pytest.mark.parametrize(
    ("recipe", "settings", "says"),
    [
        ("translation", {"data.longer": 2}, "set embedded = 'copy' or 'reverse'"),
        ("translation", {"data.embedded": "copy", "data.train": "a.txt"}, "choose embedded texts"),
        ("translation", {"data.embedded": "copy", "data.longer": 30}, "raise longest"),
        ("classification", {"data.longer": 2}, "is for data.embedded = 'recall'"),
        ("recall-linear-attention", {"data.longer": 40}, "raise data.longest to 650"),
    ],
)
def test_row_e10_what_has_no_meaning_is_refused(recipe: str, settings: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        sw.train(recipe, settings=settings)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["copy-attention", "recall-linear-attention"])
def test_row_e10_one_family_holds_at_ten_times_the_length(name: str, tmp_path: Path) -> None:
    table, published = load_published(name)
    trained = sw.train(make_spec(table), settings={"train.device": "cpu"}, out=tmp_path / "run")
    figure = sw.load(trained.path, device="cpu").evaluate()._asdict()[published.metric]
    assert published.goal is not None
    assert figure >= published.goal.figure
