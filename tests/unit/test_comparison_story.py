"""Several studies under one title, and a search that was run once: read, changed, and said where it does not fit."""

import json
from pathlib import Path
from typing import Any

import pytest
from own_mixer import write_fading

from statewise.comparison.comparison import changed_story
from statewise.comparison.plan import plan
from statewise.comparison.search import mismatch, write_record
from statewise.comparison.study import as_table, load_story, load_study, parse_study, spec_of
from statewise.comparison.study_data import Opener
from statewise.specs import UserError
from statewise.specs.study import StudySpec, Tried

STUDY = """
title = "{title}"
question = "Which?"
seeds = 1
minutes = {minutes}
budget.kind = "none"
search = {{ trials = 2, space = {{ "train.lr" = [0.1, 0.01] }} }}
[base.train]
steps = 10
batch = 4
truncation = 8
{entries}
"""
STORY = """
title = "Two parts"
question = "What do they say together?"
[[part]]
study = "first.toml"
[[part]]
study = "second.toml"
only = ["gru", "lstm"]
settings = {{ seeds = 2, base.train.batch = 2 }}
{more}
"""


def write(folder: Path, *, more: str = "") -> Path:
    for title, minutes, kinds in (("first", 1.0, ("elman", "gru")), ("second", 3.0, ("gru", "lstm", "window"))):
        entries = "\n".join(f'[[entry]]\nname = "{kind}"\nsettings.model.kind = "{kind}"' for kind in kinds)
        text = STUDY.format(title=title, minutes=minutes, entries=entries)
        (folder / f"{title}.toml").write_text(text, encoding="utf-8")
    path = folder / "story.toml"
    path.write_text(STORY.format(more=more), encoding="utf-8")
    return path


def entries(story: Any) -> dict[str, list[str]]:
    return {chapter.name: [entry.name for entry in chapter.study.entry] for chapter in story.chapters}


def test_a_story_is_read_with_its_parts(tmp_path: Path) -> None:
    story = load_story(write(tmp_path, more='[look]\npart = "first"'))
    assert entries(story) == {"first": ["elman", "gru"], "second": ["gru", "lstm"]}
    assert [chapter.study.seeds for chapter in story.chapters] == [1, 2]
    assert story.chapters[1].study.base["train"]["batch"] == 2
    assert story.minutes == 4
    assert not story.alone
    alone = load_story(tmp_path / "first.toml")
    assert (alone.alone, alone.title, entries(alone)) == (True, "first", {"first": ["elman", "gru"]})
    with pytest.raises(UserError, match="story of several studies"):
        load_study(tmp_path / "story.toml")


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ('[[part]]\nstudy = "first.toml"', "two parts of the name 'first'"),
        ('[[part]]\nstudy = "third.toml"', "does not exist"),
        ('[[part]]\nstudy = "first.toml"\nname = "again"\nonly = ["lstm"]', "no such entry"),
        ('[[part]]\nstudy = "first.toml"\nnmae = "again"', "did you mean 'name'"),
        ('[look]\npart = "frist"', "did you mean 'first'"),
    ],
)
def test_what_is_wrong_with_a_story_is_named(tmp_path: Path, more: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        load_story(write(tmp_path, more=more))


def test_a_change_goes_to_the_parts_it_concerns(tmp_path: Path) -> None:
    path = write(tmp_path, more='[look]\npart = "first"')

    def changed(settings: dict[str, Any] | None = None, **more: Any) -> Any:
        return changed_story(path, settings=settings or {}, **more)

    some = changed(only=["elman", "gru"])
    assert entries(some) == {"first": ["elman", "gru"], "second": ["gru"]}
    last = changed(only=["lstm"], add=["deep=lstm model.depth=2"])
    assert entries(last) == {"second": ["lstm", "deep"]}
    assert last.look is None, "its part is left out"
    assert entries(changed(add=["deep=gru model.depth=2"])) == {
        "first": ["elman", "gru"],
        "second": ["gru", "lstm", "deep"],
    }, "the last part that has the entry it is like"
    assert entries(changed(add=["relu=elman model.activation=relu"]))["first"] == ["elman", "gru", "relu"]
    everywhere = changed({"seeds": 5, "second.base.train.batch": 8})
    assert [chapter.study.seeds for chapter in everywhere.chapters] == [5, 5]
    assert [chapter.study.base["train"]["batch"] for chapter in everywhere.chapters] == [4, 8]
    longer = changed(minutes=8)
    assert [chapter.study.minutes for chapter in longer.chapters] == [2, 6]
    assert [chapter.study.base["train"]["steps"] for chapter in longer.chapters] == [20, 20]
    with pytest.raises(UserError, match="no such entry"):
        changed(only=["lsmt"])
    with pytest.raises(UserError, match="no entry 'elman'"):  # its part is left out
        changed(only=["lstm"], add=["relu=elman model.activation=relu"])
    with pytest.raises(UserError, match=r"base\.train\.steps=5"):
        changed({"train.steps": 5})
    with pytest.raises(UserError, match="minutes is 0"):
        changed(minutes=0)


def test_a_class_of_the_users_goes_to_the_last_part_that_is_kept(tmp_path: Path) -> None:
    path, own = write(tmp_path), write_fading(tmp_path)

    def changed(**more: Any) -> Any:
        return changed_story(path, settings=more.pop("settings", {}), **more)

    first, second = ["elman", "gru"], ["gru", "lstm"]
    assert entries(changed(mixers=own)) == {"first": first, "second": [*second, "fading_sum"]}
    assert entries(changed(mixers=own, only=["elman"])) == {"first": ["elman", "fading_sum"]}
    added = [f"mine={own} model.options.keep=0.5", "deep=elman model.depth=2"]
    both = changed(add=added, settings={"seeds": 5}, minutes=8)
    assert entries(both) == {"first": [*first, "deep"], "second": [*second, "mine"]}
    assert [chapter.study.base["train"]["steps"] for chapter in both.chapters] == [20, 20]
    assert entries(changed(mixers=own, add=["mine=FadingSum model.width=8"]))["second"] == [*second, "mine"]
    spec = spec_of(both.chapters[1].study, both.chapters[1].study.entry[2])
    assert (spec.model.kind, spec.model.options["keep"]) == ("custom", 0.5)

    kept = as_table(changed(mixers=own, only=["elman"]).chapters[0].study)
    with pytest.raises(UserError, match="needs the mixer class 'FadingSum'"):
        load_story(kept)
    (again,) = changed_story(kept, settings={}, mixers=own).chapters
    assert [entry.name for entry in again.study.entry] == ["elman", "fading_sum"], "it has an entry already"


# -------------------------------------------------------------------- a recorded search


@pytest.fixture(scope="module")
def opener() -> Opener:
    return Opener()


def recorded(folder: Path, opener: Opener) -> Path:
    """A study whose search says that 0.01 is best for one entry and 0.1 for the other."""
    write(folder)
    study = load_study(folder / "first.toml")
    metrics = {("elman", 0.1): 3.0, ("elman", 0.01): 2.5, ("gru", 0.1): 2.0, ("gru", 0.01): None}
    tried = [Tried(entry=name, settings={"train.lr": lr}, metric=metric) for (name, lr), metric in metrics.items()]
    write_record(folder / "first.search.json", study, plan(study, opener=opener).entries, tried)
    return folder / "first.toml"


def rates(study: StudySpec, opener: Opener) -> dict[str, float]:
    made = plan(study, opener=opener)
    return {trial.entry: trial.spec.train.lr for trial in made.final_trials()}


def test_a_recorded_search_is_used_and_not_run_again(tmp_path: Path, opener: Opener) -> None:
    study = load_study(recorded(tmp_path, opener))
    made = plan(study, opener=opener)
    assert made.search_trials == []
    assert rates(study, opener) == {"elman": 0.01, "gru": 0.1}
    assert mismatch(made.study, made.entries) == ""
    kept = parse_study(json.loads(json.dumps(made.study.model_dump(mode="json", exclude_none=True))))
    assert rates(kept, opener) == rates(study, opener), "the study that is kept says the same"


def test_a_search_is_run_again_on_request_and_what_is_set_is_not_searched(tmp_path: Path, opener: Opener) -> None:
    path = recorded(tmp_path, opener)
    (anew,) = changed_story(path, settings={}, search=True).chapters
    assert len(plan(anew.study, opener=opener).search_trials) == 4
    (given,) = changed_story(path, settings={"base.train.lr": 0.5}).chapters
    assert rates(given.study, opener) == {"elman": 0.5, "gru": 0.5}
    (added,) = changed_story(path, settings={}, add=["deep=elman model.depth=2"]).chapters
    assert rates(added.study, opener) == {"elman": 0.01, "gru": 0.1, "deep": 0.01}, "as what it is like"


def test_a_record_of_something_else_is_said_to_be_one(tmp_path: Path, opener: Opener) -> None:
    path = recorded(tmp_path, opener)

    def said(settings: dict[str, Any], **more: Any) -> str:
        (one,) = changed_story(path, settings=settings, **more).chapters
        made = plan(one.study, opener=opener)
        return mismatch(made.study, made.entries)

    assert said({"seeds": 4, "base.train.evaluate_every": 3}) == ""
    assert said({}, only=["gru"]) == ""
    assert said({}, add=["deep=elman model.depth=2"]) == "", "it has the rate of what it is like"
    own = said({}, mixers=[write_fading(tmp_path)])
    assert own == "Not searched: fading_sum (trained with the study's own train.lr)."
    assert "base train.steps = 10 (now 20)" in said({}, minutes=2)
    assert "base train.clip = unset (now 0.5)" in said({"base.train.clip": 0.5})
    assert "data.held_out = unset (now 0.3)" in said({"base.data.held_out": 0.3})
    (tmp_path / "other.txt").write_text("another text. " * 60, encoding="utf-8")
    made = plan(load_study(path), data=tmp_path / "other.txt")
    assert "run with other data:" in mismatch(made.study, made.entries)
    (tmp_path / "first.search.json").write_text("[]", encoding="utf-8")
    with pytest.raises(UserError, match="is not the record of a search"):
        load_study(path)
