"""Every shipped study loads, meets its budget, and its first entries train and give its figure."""

import math
from pathlib import Path

import pytest

from statewise.comparison.plan import plan
from statewise.comparison.record import Order, read_found, write_order
from statewise.comparison.search import mismatch
from statewise.comparison.study import Chapter, changed, load_story, load_study, spec_of, study_names
from statewise.comparison.study_data import Opener
from statewise.comparison.trial import COSTS
from statewise.comparison.worker import run_trial
from statewise.models import LINEAGE
from statewise.specs import parse_spec
from statewise.tasks import metric_of

_SHORT = {"train.steps": 2, "train.batch": 4, "train.evaluate_tokens": 200, "train.evaluate_every": 100}


# Reading trees, source code and phrases takes longer than two steps of training.
_QUICK = ("cost", "forecast", "prediction", "truncation")
_STUDIES = [name for name in study_names() if load_story(name).alone]
_opener = Opener()
_LARGE = (
    "chain-vs-tree",
    "context",
    "direction",
    "memory",
    "passages",
    "termination",
)  # whose data take seconds to read
_SLOW_TO_PLAN = (*_LARGE, "batches", "forcing", "ladder")  # as the others are planned


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in _SLOW_TO_PLAN else name for name in _STUDIES]
)
def test_every_study_is_planned(name: str) -> None:
    made = plan(load_study(name), opener=_opener)
    study = made.study
    trials = made.final_trials()
    assert len(trials) == len(study.entry) * study.seeds
    assert len({one.key for one in trials}) == len(trials)
    for trial in trials:
        assert parse_spec(trial.spec.model_dump(mode="json")) == trial.spec
    for entry, written in zip(made.entries, study.entry):
        assert (entry.error is None) == (study.budget.kind == "none" or written.width is None)
        assert abs(entry.error or 0) <= 0.02
    assert study.question.endswith("?")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in _LARGE else name for name in _STUDIES]
)
def test_the_metric_is_watched_along_training(name: str) -> None:
    """So every study has a curve of its own figure, and it is known which end of each figure is the good one."""
    study = load_study(name)
    job = _opener(spec_of(study, study.entry[0])).job
    # Bits per byte are nats in another unit; what a model costs does not change in training.
    assert study.metric in {*job.judges, "bits_per_byte", *COSTS}
    assert {name: metric_of(name).better for name in job.judges} == dict(job.judges)
    assert study.better == metric_of(study.metric).better


def test_the_default_study_is_the_story_of_the_lineage() -> None:
    """Every way to remember, in the order of years, in at most four minutes."""
    story = load_story("lineage")
    assert [chapter.name for chapter in story.chapters] == ["memory", "prediction"]
    assert story.look is not None
    assert story.look.part == "memory"
    assert story.minutes <= 4
    years = {row.name: row.year for row in LINEAGE}
    for chapter in story.chapters:
        kinds = [spec_of(chapter.study, entry).model.kind for entry in chapter.study.entry]
        assert [years[kind] for kind in kinds] == sorted(years[kind] for kind in kinds)
        assert {"window", "elman", "lstm", "gru", "transformer", "ttt_linear"} <= set(kinds)
    orders = [
        spec.model.order
        for entry in story.chapters[1].study.entry
        if (spec := spec_of(story.chapters[1].study, entry)).model.kind == "markov"
    ]
    assert orders == [1, 2, 4, 7]


@pytest.mark.parametrize("chapter", load_story("lineage").chapters, ids=lambda chapter: chapter.name)
def test_the_recorded_search_is_that_of_the_study_and_equal(chapter: Chapter) -> None:
    """Every entry that trains has tried every value, and runs with its best one."""
    study = chapter.study
    made = plan(study, opener=_opener)
    assert mismatch(made.study, made.entries) == ""
    (path, values), *more = study.search.space.items()
    assert not more
    for entry in made.entries:
        tried = [one.settings[path] for one in study.record if one.entry == entry.name]
        assert tuple(tried) == (values if entry.spec.learns == "gradient" else ())
        if tried:
            chosen = study.chosen(entry.name)
            assert chosen is not None
            assert entry.spec.train.lr == chosen.settings["train.lr"]
            inside = chosen.settings["train.lr"] not in (values[0], values[-1])
            chance = chapter.name == "memory" and entry.name == "window"  # it never sees the pair: all values do alike
            assert inside or chance, "the best may lie beyond what was tried"


@pytest.mark.parametrize(
    "name", [name if name in _QUICK else pytest.param(name, marks=pytest.mark.slow) for name in _STUDIES]
)
def test_first_entries_train_and_have_the_figure(name: str, tmp_path: Path) -> None:
    study = load_study(name)
    short = {path: value for path, value in _SHORT.items() if study.base["train"].get("steps") or "steps" not in path}
    if study.base.get("task") == "translation":
        short |= {"decoding.watch": 0, "decoding.beam": 1, "decoding.draws": 0, "decoding.extra": 0}
    made = plan(changed(study, short).model_copy(update={"seeds": 1, "entry": study.entry[:2]}), opener=_opener)
    for trial in made.final_trials():
        path = tmp_path / trial.key
        path.mkdir()
        write_order(path, Order(trial, study.metric, study.budget.context))
        assert run_trial(path) == "found"
        found = read_found(path)
        assert found is not None
        assert math.isfinite(found.figures[study.metric])
        task = trial.spec.task
        assert (found.answers is not None) == (task not in ("language_model", "forecasting"))
        assert (found.course is not None) == (task == "forecasting")
        assert (found.prompt is not None) == (task == "language_model")
        assert bool(found.anchors) == (study.metric not in (*COSTS, "length_exact"))
