"""The look inside: gradients by place, against those of the lens, and against what a window can see."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from statewise.comparison.look import first_pair_rows, influence, look_inside
from statewise.comparison.plan import plan
from statewise.comparison.record import Order, read_found, write_order
from statewise.comparison.report import Part
from statewise.comparison.study import parse_study
from statewise.comparison.worker import run_trial
from statewise.inspection.gradient.flow import follow_row
from statewise.specs import UserError
from statewise.specs.study import LookSpec
from statewise.tasks import load
from statewise.tasks.classification.examples import read_split
from statewise.tasks.classification.run import ClassificationRun

STUDY: dict[str, Any] = {
    "title": "Recall",
    "question": "Who?",
    "seeds": 1,
    "metric": "accuracy",
    "better": "higher",
    "budget": {"kind": "none", "context": 15},
    "base": {
        "task": "classification",
        "data": {"embedded": "recall", "distance": 5},
        "model": {"width": 8},
        "train": {"steps": 2, "batch": 4, "device": "cpu"},
    },
    "entry": [
        {"name": "window", "settings": {"model": {"kind": "window", "order": 4}}},
        {"name": "gru", "settings": {"model.kind": "gru"}},
    ],
}


def ran(folder: Path, **more: Any) -> Part:
    made = plan(parse_study({**STUDY, **more}))
    found = []
    for trial in made.final_trials():
        path = folder / "trials" / trial.key
        path.mkdir(parents=True)
        write_order(path, Order(trial, made.study.metric, made.study.budget.context))
        assert run_trial(path) == "found"
        result = read_found(path)
        assert result is not None
        found.append(result)
    return Part("recall", made.study, made.entries, found, [], folder)


@pytest.fixture(scope="module")
def part(tmp_path_factory: pytest.TempPathFactory) -> Part:
    return ran(tmp_path_factory.mktemp("look"))


def test_gradients_are_those_of_the_lens(part: Part) -> None:
    """The lens follows one row at a time, through other code."""
    for found in part.found:
        run = load(part.folder / "trials" / found.key / "run")
        assert isinstance(run, ClassificationRun)
        rows = first_pair_rows(run.spec, most=3)
        norm_BT = influence(run, rows.texts, rows.labels)
        specimens = run.specimens().precise()
        held = list(read_split(run.spec.data, seed=run.spec.seed)[1].content)
        for text, norm_T in zip(rows.texts, norm_BT):
            flow = follow_row(specimens.at(held.index(text)), [0], states=False)
            np.testing.assert_allclose(norm_T, flow.input_QT[0], rtol=1e-9, atol=1e-15)


def test_every_row_asks_for_its_first_pair(part: Part) -> None:
    rows = first_pair_rows(part.entries[0].spec, most=7)  # type: ignore[arg-type]
    assert len(rows.texts) == len(rows.labels) == 7
    for text, label in zip(rows.texts, rows.labels):
        key, value, *_, asked = text.split()
        assert (key, value) == (asked, label)
    covered = [place for _, at in rows.stretches for place in range(*at.indices(15))]
    assert covered == list(range(4 * 2 + 5 + 2)), "every token is shown once"
    assert len({name for name, _ in rows.stretches}) == len(rows.stretches)


def test_a_map_of_shares(part: Part) -> None:
    figure = look_inside(LookSpec(part="recall", rows=16), [part])
    assert figure is not None
    assert figure.grid is not None
    assert figure.y.categories == ("window", "gru")
    window, gru = figure.grid.values
    for shares in (window, gru):
        assert sum(share or 0 for share in shares) == pytest.approx(1)
    assert not any(window[:-4]), "what is outside of the window has no say"
    assert all(share and share > 0 for share in gru)
    assert "In window, less than 1% of the gradient reaches any pair." in figure.finding
    assert "in gru" in figure.finding


@pytest.mark.slow
def test_where_there_is_nothing_to_look_at(part: Part, tmp_path: Path) -> None:
    assert look_inside(None, [part]) is None
    assert look_inside(LookSpec(part="recall"), [part._replace(found=[])]) is None
    base = {**STUDY["base"], "data": {"embedded": "docstrings"}}
    other = ran(tmp_path, base=base, entry=STUDY["entry"][1:])
    with pytest.raises(UserError, match="not a study of embedded recall"):
        look_inside(LookSpec(part="recall"), [other])
