"""“I grew up in Italy … I speak fluent”: the passages are what they say, and their distance decides who can answer."""

from collections import Counter
from pathlib import Path

import pytest

import statewise as sw
from statewise.comparison.study import load_study, spec_of
from statewise.data.embedded import distance_of, passages
from statewise.models import LINEAGE
from statewise.specs import UserError, parse_spec
from statewise.tasks.bag_of_words import BAG_OF_WORDS
from statewise.tasks.classification import ClassificationEvaluation, ClassificationRun

LANGUAGE = {"Italy": "Italian", "France": "French", "Spain": "Spanish", "Germany": "German"}
LANGUAGE |= {"Poland": "Polish", "Japan": "Japanese", "Greece": "Greek", "Turkey": "Turkish"}


def test_row_b6_the_country_stands_early_and_the_answer_at_the_distance() -> None:
    made = passages(distance=40, count=500, held=40, seed=3)
    for row in (*made.train, *made.held):
        words = row.text.split()
        countries = [place for place, word in enumerate(words) if word in LANGUAGE]
        assert countries[0] == 4
        assert LANGUAGE[words[4]] == row.label
        assert len(words) - countries[0] == distance_of(row.text)
        assert "." in words[-4], "the last sentence has no stop yet: its next word is asked for"
    assert Counter(distance_of(row.text) for row in made.held) == {10: 40, 20: 40, 40: 40}
    assert {distance_of(row.text) for row in made.train} == set(range(10, 41))
    assert not {row.text for row in made.train} & {row.text for row in made.held}
    assert len({row.label for row in made.train}) == len(LANGUAGE)
    far = [row for row in made.held if distance_of(row.text) == 40]
    others = [sum(word in LANGUAGE for word in row.text.split()) - 1 for row in far]
    assert sum(others) / len(far) > 1, "other countries are named, so that words cannot just be counted"
    assert passages(distance=40, count=500, held=40, seed=3).sha256 == made.sha256


def evaluated(model: dict[str, object], out: Path, *, distance: int, steps: int) -> ClassificationEvaluation:
    train = {"steps": steps, "batch": 32, "lr": 8e-3, "warmup": 10, "evaluate_every": steps, "device": "cpu"}
    data = {"embedded": "passages", "distance": distance}
    spec = parse_spec({"task": "classification", "data": data, "model": {**model, "width": 24}, "train": train})
    trained = sw.train(spec, out=out)
    run = sw.load(trained.path, device="cpu")
    assert isinstance(run, ClassificationRun)
    return run.evaluate()


def test_row_b6_a_window_answers_as_far_as_it_reaches(tmp_path: Path) -> None:
    """It sees the last eight words, so the country at distance 8 and never at 16."""
    found = evaluated({"kind": "window", "order": 8}, tmp_path / "window", distance=16, steps=200)
    assert list(found.accuracy_at) == [8, 16]
    assert found.accuracy == pytest.approx(sum(found.accuracy_at.values()) / 2)
    assert found.accuracy_at[8] > 0.6
    assert found.accuracy_at[16] < 0.3
    assert "accuracy by distance: 8: " in repr(found)


@pytest.mark.slow
def test_row_b6_a_gated_state_answers_at_every_distance(tmp_path: Path) -> None:
    found = evaluated({"kind": "lstm"}, tmp_path / "lstm", distance=32, steps=400)
    assert min(found.accuracy_at.values()) > 0.95
    assert found.baselines[BAG_OF_WORDS]["accuracy"] < 0.9


def test_row_b6_the_study_has_every_family_and_keeps_the_distances_apart() -> None:
    study = load_study("passages")
    kinds = {spec_of(study, entry).model.kind for entry in study.entry}
    assert {"window", "elman", "lstm", "gru", "transformer", "linear_attention", "mamba2", "ttt_linear"} == kinds
    assert kinds <= {row.name for row in LINEAGE}
    assert study.also == ("accuracy_at",)


def test_row_b6_a_distance_without_room_is_refused() -> None:
    for distance, message in ((4, "has no room for a passage"), (400, "raise data.longest to 404")):
        with pytest.raises(UserError, match=message):
            sw.train("classification", settings={"data.embedded": "passages", "data.distance": distance})
