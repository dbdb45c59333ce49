"""One seed, one run: in two processes, and proved by hash where it was asked for."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_run import FAMILIES, call, environment, evidence, options, start, write_text

from statewise.models import LanguageModel
from statewise.tasks import LanguageModelJob


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_text(tmp_path_factory.mktemp("text"))


def test_two_processes_one_result(text: Path, tmp_path: Path) -> None:
    here = start("lstm", text, tmp_path / "here", FAMILIES["lstm"])
    argv = ["train", "lstm", "--text", str(text), "--json", "--quiet", *options(FAMILIES["lstm"])]
    done = subprocess.run(
        [sys.executable, "-m", "statewise", *argv, "--out", str(tmp_path / "there")],
        env=environment(PYTHONHASHSEED="7"),
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)["weights_sha256"] == here.outcome.weights_sha256
    for name in ("metrics.jsonl", "model.safetensors"):
        assert (tmp_path / "there" / name).read_bytes() == (tmp_path / "here" / name).read_bytes()


@pytest.mark.parametrize("kind", FAMILIES)
def test_again_in_this_process_and_with_another_seed(kind: str, text: Path, tmp_path: Path) -> None:
    first = evidence(start(kind, text, tmp_path / "1", FAMILIES[kind]))
    torch.manual_seed(12345)
    assert evidence(start(kind, text, tmp_path / "2", FAMILIES[kind])) == first
    other = evidence(start(kind, text, tmp_path / "3", {**FAMILIES[kind], "seed": 1}))
    assert other["weights"] != first["weights"]
    assert other["metrics"] != first["metrics"]


@pytest.fixture
def restored() -> Any:
    """`--deterministic` is a setting of the whole process."""
    yield
    torch.use_deterministic_algorithms(False)
    os.environ.pop("CUBLAS_WORKSPACE_CONFIG", None)


@pytest.mark.usefixtures("restored")
@pytest.mark.parametrize("kind", FAMILIES)
def test_the_proof_holds(kind: str, text: Path, tmp_path: Path) -> None:
    """The gru's rate falls on a plateau, so its evaluations are a part of what is repeated."""
    argv = ["train", kind, "--text", str(text), "--out", str(tmp_path / "run"), *options(FAMILIES[kind])]
    said = call(*argv, "--deterministic", "--json")
    assert said.code == 0
    assert json.loads(said.out)["deterministic"] is True
    assert "deterministic: the first 24 steps again give the same weights" in said.err


@pytest.mark.usefixtures("restored")
def test_without_being_asked_nothing_is_claimed(text: Path, tmp_path: Path) -> None:
    said = call("train", "gru", "--text", str(text), "--out", str(tmp_path / "run"), *options(), "--json", "--quiet")
    assert json.loads(said.out)["deterministic"] is None


@pytest.mark.usefixtures("restored")
def test_chance_from_outside_is_found_out(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest, outside = LanguageModelJob.build, torch.Generator()

    def build(job: LanguageModelJob) -> LanguageModel:
        model = honest(job)
        model.stack.register_forward_hook(
            lambda module, inputs, result: (
                result[0] + 1e-3 * torch.randn(result[0].shape, generator=outside),
                result[1],
            )
        )
        return model

    monkeypatch.setattr(LanguageModelJob, "build", build)
    argv = ["train", "gru", "--text", str(text), "--out", str(tmp_path / "run"), *options()]
    said = call(*argv, "--deterministic", "--json")
    assert said.code == 1
    assert json.loads(said.out)["deterministic"] is False
    assert "give OTHER weights" in said.err
