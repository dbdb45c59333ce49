"""The look inside: gradients by place, against those of the lens, and against what a window can see."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from statewise.comparison.plan import plan
from statewise.comparison.recall import first_pair_rows, gradient_map, influence
from statewise.comparison.record import Order, read_found, write_order
from statewise.comparison.report import Part
from statewise.comparison.study import parse_study
from statewise.comparison.worker import run_trial
from statewise.inspection.gradient.flow import follow_row
from statewise.models import Classifier
from statewise.specs import UserError
from statewise.specs.study import LookSpec
from statewise.tasks import load
from statewise.tasks.classification.reading import read_split
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


def direct(run: ClassificationRun, text: str, label: str) -> NDArray[np.float64]:
    """Of log p(label), through the model itself."""
    assert isinstance(run.model, Classifier)
    model = copy.deepcopy(run.model).double()
    batch = run.encoding.encode([text]).batch(np.arange(1)).to(run.device)
    x_1TE = model.reader.entry(batch.source).detach().requires_grad_()
    encoded = model.reader.encoded(model.reader.read(model.reader.admit(x_1TE)).outputs_BSC, batch.size_B)
    model.head(encoded.summary_BC).log_softmax(-1)[0, run.classes.names.index(label)].backward()
    assert x_1TE.grad is not None
    return x_1TE.grad[0].norm(dim=-1).numpy()


def test_gradients_are_those_of_the_model_and_of_the_lens(part: Part) -> None:
    for found in part.found:
        run = load(part.folder / "trials" / found.key / "run")
        assert isinstance(run, ClassificationRun)
        held = read_split(run.spec.data, seed=run.spec.seed)[1]
        rows = first_pair_rows(run.specimens().precise(), distance=5, most=3)
        asked = [at for at, text in enumerate(held.content) if text.split()[0] == text.split()[-1]][:3]
        for at, row in zip(asked, rows.rows, strict=True):
            norm_T = influence(row)
            np.testing.assert_allclose(norm_T, direct(run, held.content[at], held.labels[at]), rtol=1e-9, atol=1e-15)
            flow = follow_row(row, [0], states=False)
            np.testing.assert_allclose(norm_T, flow.input_QT[0], rtol=1e-9, atol=1e-15)


def test_every_row_asks_for_its_first_pair(part: Part) -> None:
    specimens = load(part.folder / "trials" / part.found[0].key / "run").specimens()
    rows = first_pair_rows(specimens, distance=5, most=7)
    assert len(rows.rows) == 7
    for row in rows.rows:
        key, value, *_, asked = (piece.strip() for piece in row.pieces)
        assert (key, (value,)) == (asked, row.questions)
    covered = [place for _, at in rows.stretches for place in range(*at.indices(15))]
    assert covered == list(range(4 * 2 + 5 + 2)), "every token is shown once"
    assert len({name for name, _ in rows.stretches}) == len(rows.stretches)


def test_a_map_of_shares(part: Part) -> None:
    figure = gradient_map(LookSpec(part="recall", rows=16), [part])
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
    assert gradient_map(None, [part]) is None
    assert gradient_map(LookSpec(part="recall"), [part._replace(found=[])]) is None
    base = {**STUDY["base"], "data": {"embedded": "docstrings"}}
    other = ran(tmp_path, base=base, entry=STUDY["entry"][1:])
    with pytest.raises(UserError, match="not a study of embedded recall"):
        gradient_map(LookSpec(part="recall"), [other])
