"""Studies as data: what loads, what is refused, and what a shorter one is."""

from pathlib import Path
from typing import Any

import pytest

from statewise.comparison.comparison import changed_story, changed_study
from statewise.comparison.study import changed, load_study, parse_study, scaled, spec_of, study_names, with_entries
from statewise.specs import LanguageModelSpec, UserError


def table(**more: Any) -> dict[str, Any]:
    entries = [{"name": "a"}, {"name": "b", "settings": {"model.kind": "gru", "train": {"lr": 0.5}}}]
    return {"title": "t", "question": "q", "base": {"train": {"steps": 40, "lr": 0.1}}, "entry": entries, **more}


def test_an_entry_stands_above_the_base_and_a_setting_above_both() -> None:
    study = parse_study(table())
    a, b = study.entry
    assert spec_of(study, a).train.lr == 0.1
    spec = spec_of(study, b, {"train.batch": 7})
    assert isinstance(spec, LanguageModelSpec)
    assert (spec.model.kind, spec.train.lr, spec.train.steps, spec.train.batch) == ("gru", 0.5, 40, 7)
    assert spec_of(changed(study, {"train.lr": 0.2}), a).train.lr == 0.2
    assert spec_of(changed(study, {"train.lr": 0.2}), b).train.lr == 0.5


def test_some_entries_and_others_that_are_like_one() -> None:
    study = parse_study(table())
    some = with_entries(study, only=["b"], add=["'b, slow'=b train.lr=0.25 train.batch=3"])
    assert [entry.name for entry in some.entry] == ["b", "b, slow"]
    assert spec_of(some, some.entry[1]).train.lr == 0.25
    assert spec_of(some, some.entry[1], {"train.steps": 9}) == spec_of(
        study, study.entry[1], {"train.lr": 0.25, "train.batch": 3, "train.steps": 9}
    )
    assert with_entries(study, add=["c=a model.kind=elman"]).entry[:2] == study.entry  # what was there stays as it was


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"only": ["bb"]}, 'only="bb": the study has no such entry\ndid you mean '),
        ({"add": ["c"]}, "does not say what the new entry is like\ngive the new name"),
        ({"add": ["c=bb train.lr=1"]}, "the study has no entry 'bb'\ndid you mean 'b'"),
        ({"add": ["c=b"]}, "'c' would be the same run as 'b'"),
        ({"add": ["c=b 'train.lr"]}, "cannot be read: No closing quotation"),
        ({"add": ["c=b train.rl=1"]}, "train.rl: unknown key"),
        ({"add": ["a=b train.lr=1"]}, "two entries of the name 'a'"),
    ],
)
def test_what_cannot_be_added_is_refused(asked: dict[str, list[str]], says: str) -> None:
    with pytest.raises(UserError, match=f"(?s){says}"):
        with_entries(parse_study(table()), **asked)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"seed": 3}, "seed: unknown key; did you mean 'seeds'"),
        ({"budget": {"amonut": 3}}, "budget.amonut: unknown key; did you mean 'amount'"),
        ({"budget": {"also": {"knid": "tokens"}}}, "budget.also.knid: unknown key; did you mean 'kind'"),
        (
            {"budget": {"also": {"kind": "parameters"}}},
            "budget.also.kind: input should be 'flops', 'tokens' or 'seconds'",
        ),
        (
            {"budget": {"kind": "tokens", "also": {"kind": "flops"}}},
            "budget: budget.also needs a size budget, but kind is 'tokens'",
        ),
        ({"budget": {"kind": "seconds"}}, "budget: a budget of seconds needs its amount"),
        ({"budget": {"also": {"kind": "seconds"}}}, "budget.also: a budget of seconds needs its amount"),
        ({"budget": {"kind": "seconds", "amount": 0}}, "budget.amount: input should be greater than 0"),
        ({"entry": [{"name": "a"}, {"name": "a"}]}, "two entries of the name 'a'"),
        ({"entry": [{"name": "a", "settings": {"model.kind": "lsmt"}}]}, "entry 'a' of the study is not valid"),
        ({"entry": [{"name": "a", "settings": {"model.knid": "lstm"}}]}, "model.knid: unknown key"),
        ({"entry": []}, "entry:"),
        ({"seeds": 0}, "seeds:"),
    ],
)
def test_what_is_wrong_is_named(more: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        parse_study(table(**more))


def test_a_study_is_found_by_name_or_by_path(tmp_path: Path) -> None:
    assert "lineage" in study_names()
    assert len(load_study("prediction").entry) > 10
    path = tmp_path / "mine.toml"
    path.write_text('title = "t"\nquestion = "q"\n[base.train]\nsteps = 3\n[[entry]]\nname = "a"\n', encoding="utf-8")
    assert load_study(path) == load_study(str(path))
    with pytest.raises(UserError, match="did you mean 'lineage'"):
        load_study("lineag")
    with pytest.raises(UserError, match="does not exist"):
        load_study(tmp_path / "other.toml")
    path.write_text("title = ", encoding="utf-8")
    with pytest.raises(UserError, match="not valid TOML"):
        load_study(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match="UTF-8"):
        load_study(path)


def test_a_shorter_study_has_fewer_of_all_that_is_counted_in_steps() -> None:
    budget = {"kind": "flops", "amount": 1000}
    entries = [
        {"name": "a", "settings": {"train.steps": 10}},
        {"name": "b", "settings": {"train": {"steps": 20, "lr": 1.0}}},
        {"name": "none", "settings": {"train.steps": 0}},
    ]
    base = {"train": {"steps": 400, "warmup": 1, "evaluate_every": 100, "batch": 8, "lr": 0.1}}
    study = parse_study(table(budget=budget, entry=entries, base=base, minutes=4.0))
    short = scaled(study, 1)
    assert short.base["train"] == {"steps": 100, "warmup": 1, "evaluate_every": 25, "batch": 8, "lr": 0.1}
    assert [spec_of(short, entry).train.steps for entry in short.entry] == [2, 5, 0]
    assert (short.budget.amount, short.minutes) == (250, 1.0)
    assert scaled(study, 4.0) == study
    both = {"amount": 1000, "also": {"kind": "seconds", "amount": 60}}
    assert scaled(parse_study(table(budget=both, minutes=4.0)), 1).budget.held() == (
        ("parameters", 1000),
        ("seconds", 15),
    )
    with pytest.raises(UserError, match="minutes is 0"):
        scaled(study, 0)


def test_what_the_base_says_of_its_own_kind_does_not_reach_another() -> None:
    base = {"model": {"kind": "transformer", "heads": 2, "width": 24}}
    study = parse_study(table(base=base, entry=[{"name": "a"}, {"name": "b", "settings": {"model.kind": "gru"}}]))
    a, b = (spec_of(study, entry).model_dump()["model"] for entry in study.entry)
    assert (a["heads"], a["width"]) == (2, 24)
    assert "heads" not in b
    assert b["width"] == 24


def test_a_space_is_written_in_either_way() -> None:
    """`--set search.space.train.lr=[…]` and a TOML table inside a table say what a key with points says."""
    study = load_study("prediction")
    flat = changed_study(study, settings={"search": {"space": {"train.lr": [0.1, 0.01]}}, "search.trials": 2})
    deep = changed_study(study, settings={"search.space.train.lr": [0.1, 0.01], "search.trials": 2})
    assert flat.search == deep.search
    assert dict(flat.search.space) == {"train.lr": (0.1, 0.01)}


def test_an_amount_that_was_said_is_not_stretched() -> None:
    study = load_study("forcing")
    amount = {"budget.kind": "tokens", "budget.amount": 20_480}
    (said,) = changed_story("forcing", settings=amount, minutes=study.minutes / 10).chapters
    assert said.study.budget.amount == 20_480
    assert said.study.base["train"]["steps"] == study.base["train"]["steps"] / 10
    (own,) = changed_story("forcing", settings={"budget.kind": "tokens"}, minutes=0.4).chapters
    assert own.study.minutes == 0.4
