"""A comparison as a call: a table, a spec or a file, the same trials as from the command line."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from command import TEXT, call

import statewise
from statewise.specs import UserError
from statewise.specs.study import BudgetSpec, EntrySpec, StudySpec
from statewise.training import device as memory

BASE = {
    "data": {"text": ["text.txt"]},
    "train": {"device": "cpu", "steps": 3, "batch": 4, "window": 16, "truncation": 16, "evaluate_tokens": 200},
}


def spec() -> StudySpec:
    return StudySpec(
        title="Two, small!",
        question="Which?",
        seeds=1,
        base=BASE,
        budget=BudgetSpec(kind="parameters", amount=3000, tolerance=0.2),
        entry=tuple(EntrySpec(name=kind, settings={"model.kind": kind}) for kind in ("elman", "gru")),
    )


def weights(report: dict[str, Any]) -> dict[str, str]:
    rows = report["parts"][0]["trials"]["rows"]
    found = {row["entry"]["text"]: row["weights"]["text"] for row in rows}
    assert len(set(found.values())) == 2
    return found


@pytest.mark.usefixtures("warm_workers")
def test_an_object_a_table_and_a_file_are_one_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text(TEXT)
    found = statewise.compare(spec(), static=True, workers=1)
    assert found.page == Path("studies/two-small/report.html")
    assert {row["entry"] for row in found.table} == {"elman", "gru"}
    assert found.table[0]["metric"] <= found.table[1]["metric"], "the best first"
    assert all(abs(row["parameters"] / 3000 - 1) < 0.2 for row in found.table)
    assert found.verdict
    assert found.verdict in repr(found)
    assert "<table>" in found._repr_html_()
    assert (found.left, found.failed, found.stopped) == (0, 0, 0)

    table = {**spec().model_dump(mode="json", exclude_none=True), "title": "Other name"}
    again = statewise.compare(table, out="studies/two-small", static=True, workers=1)
    assert weights(found.report) == weights(again.report)
    ended = [json.loads(line) for line in Path("studies/two-small/log.jsonl").read_text().splitlines()]
    assert len([one for one in ended if one["event"] == "end"]) == 2, "what was done is not done again"

    shown: list[list[str]] = []
    live = statewise.compare(spec(), workers=1, live=lambda runs: shown.append(sorted(runs)))
    assert shown == [["elman", "gru"]], "one run of each entry"
    assert "Try them" not in live.page.read_text()

    command = found.report["command"].split()
    assert command[:2] == ["statewise", "compare"]
    said = call(*command[1:], "--static", "--quiet", "--json")
    assert said.code == 0, said.err
    assert weights(json.loads(said.out)) == weights(found.report)


@pytest.mark.slow
def test_what_a_call_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other.txt").write_text(TEXT[::-1])
    statewise.compare(
        spec(),
        data="other.txt",
        settings={"base.train.steps": 2},
        only=["gru"],
        add=["wide=gru model.depth=2"],
        out="here",
        static=True,
        workers=1,
    )
    written = tomllib.loads(Path("here/study.toml").read_text())
    assert [entry["name"] for entry in written["entry"]] == ["gru", "wide"]
    assert written["base"]["train"]["steps"] == 2
    assert "other.txt" in str(written["base"]["data"])


def test_a_study_that_is_none_is_refused() -> None:
    with pytest.raises(UserError, match=r"the study is not valid:\n  entry: "):
        statewise.compare({"title": "x", "question": "?", "base": {}, "entry": []})
    with pytest.raises(UserError, match="neither a shipped study"):
        statewise.compare("lineagge")
    with pytest.raises(UserError, match="metric"):
        statewise.compare(spec(), settings={"mertic": "x"})


def test_an_entry_that_no_memory_holds_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A vector as large as a list would be: its matrix is that squared."""
    monkeypatch.setattr(memory, "memory_of", lambda device: 2**34)
    held = {"budget.kind": "state_bytes", "budget.amount": 250_000}
    with pytest.raises(UserError, match=r"entry 'elman' has [\d,]+ parameters: to train them takes") as caught:
        statewise.compare("prediction", settings=held, only=["elman"], out=tmp_path / "study")
    assert "lower budget.amount" in str(caught.value)
    assert not (tmp_path / "study").exists()
