"""`statewise verify`: every listed model, the runs of every task, and what it says while it runs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from command import call, environment
from task_runs import RUNS, make_run

from statewise.cli.verify import _followed
from statewise.models import ENCODERS
from statewise.tasks import Finding, count_forms

QUICK = ("recursive", "classifier")  # by day; the others at night


@pytest.mark.parametrize("name", [encoding.name for encoding in ENCODERS])
def test_row_e2_models_without_a_state_have_laws(name: str) -> None:
    said = call("verify", name, "--json")
    assert said.code == 0, said.out + said.err
    findings = json.loads(said.out)
    assert {finding["dtype"] for finding in findings} == {"float64", "float32", "bfloat16", "float16"}
    own = {
        "bidirectional": {"step", "causal"},
        "grid": {"causal", "chain"},
        "tree": {"causal", "chain", "permuted"},
        "transformer_encoder": {"permuted"},
    }
    assert {finding["law"] for finding in findings} == {"rows", "ragged", "precision"} | own[name]


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in RUNS])
def test_row_e2_runs_of_every_task_are_verified(name: str, tasks: Path) -> None:
    said = call("verify", str(make_run(name, tasks)), "--json")
    assert said.code == 0, said.out + said.err
    assert {finding["law"] for finding in json.loads(said.out)} >= {"rows", "ragged", "precision"}


def test_row_e2_all_says_how_far_it_is_on_a_pipe() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "statewise", "verify", "--all"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        env=environment(),
    ) as running:
        assert running.stderr is not None
        first = running.stderr.readline()
        assert running.poll() is None, "it said something only at its end"
        running.kill()
    assert first.split() == ["1", "of", str(count_forms()), "markov:", "19", "checks", "passed"]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_row_e2_all_is_green() -> None:
    said = call("verify", "--all", "--json")
    assert said.code == 0, said.err
    findings = json.loads(said.out)
    models = list(dict.fromkeys(finding["model"] for finding in findings))
    assert len(models) == count_forms() == len(said.err.splitlines())
    listed = {row["name"] for row in json.loads(call("models", "--json").out)}
    assert {model.partition("[")[0] for model in models} == listed


def test_a_line_follows_each_model(capsys: pytest.CaptureFixture[str]) -> None:
    findings = [
        Finding("elman", "step", "float64", 0.0, True),
        Finding("elman", "split", "float64", 0.0, True),
        Finding("gru", "step", "float32", 1.0, False),
    ]
    followed = _followed(iter(findings), models=12)
    assert [next(followed), next(followed)] == findings[:2]
    assert capsys.readouterr().err == ""
    assert next(followed) == findings[2]
    assert capsys.readouterr().err == " 1 of 12  elman: 2 checks passed\n", "before the next model is finished"
    assert list(followed) == []
    assert capsys.readouterr().err == " 2 of 12  gru: BROKEN: step (float32)\n"
    assert list(_followed(iter(findings), models=None)) == findings
    assert capsys.readouterr().err == ""
