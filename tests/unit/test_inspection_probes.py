"""Memory probes: rows become tokens rightly, sizes are met, results are kept, and a memory that must fail fails."""

from pathlib import Path

import pytest
import torch

from statewise.data.cache import default_folder
from statewise.data.embedded import MEMORY_TASKS
from statewise.display import SilentProgress as Silent
from statewise.inspection import apply_lens
from statewise.inspection.probes.trial import Trial, as_tokens, ask, fitted, kept_probe, planned, probe, run
from statewise.models import LINEAGE, build
from statewise.specs import MarkovSpec, TrainSpec, UserError, WindowSpec

QUICK = TrainSpec(steps=2, batch=4, warmup=0)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.mark.parametrize("name", MEMORY_TASKS)
def test_an_answer_is_asked_for_one_symbol_before_it_stands(name: str) -> None:
    task = MEMORY_TASKS[name]
    rows = task.rows(shortest=3, longest=9, count=20, seed=0)
    tokens_BT, answers_BT = as_tokens(rows, task)
    assert tokens_BT.shape == answers_BT.shape
    for tokens_T, answers_T, row in zip(tokens_BT, answers_BT, rows):
        shown = [task.symbols[int(token)] for token in tokens_T]
        assert shown[: len(row.symbols)] == list(row.symbols[: len(shown)])
        asked = {at + 1: task.symbols[int(one)] for at, one in enumerate(answers_T) if one >= 0}
        assert asked == {place: row.symbols[place] for place in row.places}


@pytest.mark.parametrize("row", LINEAGE, ids=lambda row: row.name)
def test_every_family_meets_the_budget(row: object) -> None:
    trials = planned(
        tasks=["recall"],
        families=[row.name],
        parameters=20_000,
        train=QUICK,
        longest=4,
        factors=[1],
        rows=4,
        seed=0,
    )
    (trial,) = trials.values()
    model = build(trial.model, vocab=len(MEMORY_TASKS["recall"].symbols))
    count = sum(p.numel() for p in model.parameters())
    assert isinstance(trial.model, MarkovSpec) or 0.8 < count / 20_000 < 1.2


def test_a_trial_is_a_function_of_what_it_says_and_is_kept(tmp_path: Path) -> None:
    spec = fitted(WindowSpec(order=2), vocab=4, parameters=500)
    trial = Trial("parity", spec, QUICK, 4, (4, 8), 10, 0)
    found = kept_probe(trial, folder=tmp_path / "kept")
    assert found == probe(trial)
    steps: list[int] = []
    assert kept_probe(trial, folder=tmp_path / "kept", say=lambda step, _: steps.append(step)) == found
    assert steps == [], "it was run again"
    assert trial.key() != trial._replace(seed=1).key()


def test_who_has_the_answer_by_construction_is_right() -> None:
    """A model of counts that has seen every window it is asked about answers `induction` in rows of two symbols."""
    task = MEMORY_TASKS["induction"]
    model = build(MarkovSpec(order=3), vocab=len(task.symbols))
    rows = task.rows(shortest=2, longest=2, count=400, seed=0)
    number = {symbol: i for i, symbol in enumerate(task.symbols)}
    model.count(torch.tensor([number[s] for row in rows for s in row.symbols]).numpy())
    assert sum(one for answers in ask(model, task, rows) for one in answers) > 390


def test_the_state_of_a_list_grows_with_the_row_and_a_vector_does_not() -> None:
    trials = planned(
        tasks=["copy"],
        families=["gru", "transformer"],
        parameters=3000,
        train=QUICK,
        longest=4,
        factors=[1, 4],
        rows=2,
        seed=0,
    )
    found = run(trials, folder=default_folder() / "probes", workers=1, progress=Silent())
    gru, transformer = found["copy", "gru"].state_bytes, found["copy", "transformer"].state_bytes
    assert gru[4] == gru[16]
    assert transformer[16] > 3 * transformer[4]


def test_the_finding_and_mistakes() -> None:
    small = {"parameters": 1500, "steps": 2, "rows": 5, "longest": 3, "factors": [1, 2], "workers": 1}
    found = apply_lens(None, "probes", families=["markov", "gru"], **small)
    assert {figure.name for figure in found.figures} == {
        "probes-map",
        "probes-state",
        *(f"probes-{t}" for t in MEMORY_TASKS),
    }
    assert len(found.data["trials"]) == 2 * len(MEMORY_TASKS)
    found.to_json()
    with pytest.raises(UserError, match="lstm"):
        apply_lens(None, "probes", families=["lstn"], **small)
    with pytest.raises(UserError, match="parity"):
        apply_lens(None, "probes", tasks=["pariti"], **small)
    with pytest.raises(UserError, match="factors"):
        apply_lens(None, "probes", **{**small, "factors": []})
