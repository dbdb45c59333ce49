"""Keys, values and a question: the label is the value that stood beside the asked key."""

import pytest

from statewise.data.embedded import recall
from statewise.specs import ClassificationSpec, UserError, parse_spec
from statewise.tasks.classification.reading import read_split


@pytest.mark.parametrize("distance", [0, 5])
def test_every_question_has_one_answer_in_its_row(distance: int) -> None:
    data = recall(distance=distance, count=300, held=100, seed=1)
    pauses = set()
    for row in [*data.train, *data.held]:
        *shown, ask, asked = row.text.replace(". ", "").split()
        assert ask == "?"
        pairs = dict(zip(shown[::2], shown[1::2]))
        assert len(pairs) == 4
        assert pairs[asked] == row.label
        pauses.add(row.text.count("."))
    assert {row.text.count(".") for row in data.held} == {distance}
    assert pauses == set(range(distance + 1))
    assert not {row.text for row in data.train} & {row.text for row in data.held}


def test_it_is_a_function_of_the_seed() -> None:
    one, same, other = (recall(count=50, held=10, seed=seed) for seed in (0, 0, 1))
    assert one == same
    assert one.sha256 != other.sha256


def test_a_classifier_reads_it_by_name_and_never_loses_the_question() -> None:
    spec = parse_spec({"task": "classification", "data": {"embedded": "recall", "distance": 30, "longest": 40}})
    assert isinstance(spec, ClassificationSpec)
    train, held = read_split(spec.data, seed=0)
    assert set(train.labels) == set("01234567")
    assert max(len(text.split()) for text in [*train.content, *held.content]) == 40
    with pytest.raises(UserError, match=r"raise data\.longest to 41"):
        parse_spec({"task": "classification", "data": {"embedded": "recall", "distance": 31, "longest": 40}})
