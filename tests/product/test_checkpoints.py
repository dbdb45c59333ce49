"""A good checkpoint is always kept and can be named; whoever was killed too early starts again."""

import errno
import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from tiny_run import FAMILIES, Cut, Heard, at, call, crash, evidence, options, resume, start, write_text

from statewise.disk import lock
from statewise.specs import UserError
from statewise.tasks import LanguageModelJob, train
from statewise.training import NonFinite, checkpoint, folder
from statewise.training.folder import find_published, newest_verified, step_folders
from statewise.training.optimizer import restore_optimizer

CONSTANT = {"train.schedule": "constant", "train.clip": None, "train.keep": 3}


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_text(tmp_path_factory.mktemp("text"))


def steps_in(run: Path) -> list[int]:
    return [step for _, step in step_folders(run / "checkpoints")]


# ------------------------------------------------------------------ divergence


def test_an_early_divergence_leaves_the_beginning(text: Path, tmp_path: Path) -> None:
    whole, out, honest = evidence(start("gru", text, tmp_path / "whole")), tmp_path / "run", LanguageModelJob.loss
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LanguageModelJob, "loss", lambda *all_: (honest(*all_)[0] * math.nan, all_[-1]))
        said = call("train", "gru", "--text", str(text), "--out", str(out), *options())
    assert said.code == 3
    assert "checkpoints that are kept: step 0;" in said.err
    with pytest.raises(UserError, match=r"nothing in .* can be trusted"):
        find_published(out, needs=())  # nothing was learned: there is nothing to generate from
    assert evidence(resume(out)) == whole


def test_a_checkpoint_that_exploded_is_not_kept(text: Path, tmp_path: Path) -> None:
    out, heard = tmp_path / "run", Heard()
    start("gru", text, out, {**CONSTANT, "train.steps": 12})
    before = (out / "run.toml").read_bytes()
    with pytest.raises(NonFinite) as caught:
        resume(out, {"train.lr": 1e6, "train.steps": 24}, display=heard)
    assert "step 16: not saved, because the loss or the gradient has exploded" in heard.lines
    assert steps_in(out)[0] == 12
    assert (out / "run.toml").read_bytes() == before  # beside weights that this rate never touched
    assert "checkpoints that are kept: step 12 (best)" in caught.value.__notes__[0]
    assert resume(out, {"train.steps": 16}).resumed_from == 12


@pytest.mark.parametrize("kind", FAMILIES)
def test_ordinary_training_is_always_saved(kind: str, text: Path, tmp_path: Path) -> None:
    heard = Heard()
    start(kind, text, tmp_path / kind, FAMILIES[kind], display=heard)
    assert not [line for line in heard.lines if "not saved" in line]


# ------------------------------------------------------------------ which one to go on from


@pytest.mark.parametrize("which", ["best", 12, 16])
def test_a_checkpoint_can_be_named(which: Any, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Going on unchanged from an earlier one ends where the run has ended."""
    out, honest, calls = tmp_path / "run", LanguageModelJob.evaluate, iter(range(1, 99))

    def best_in_the_middle(*arguments: Any) -> dict[str, float]:
        return {**honest(*arguments), "nats": 1.0 if next(calls) == 2 else 9.0}

    monkeypatch.setattr(LanguageModelJob, "evaluate", best_in_the_middle)
    first = start("gru", text, out, {"train.keep": 9})
    assert first.outcome.best_step == 12
    calls = iter(range(3, 99))
    said = call("train", "--resume", str(which), "--out", str(out), "--json", "--quiet")
    assert said.code == 0, said.err
    told = json.loads(said.out)
    assert told["resumed_from"] == (12 if which == "best" else which)
    assert told["weights_sha256"] == first.outcome.weights_sha256


def test_a_checkpoint_that_is_not_there_is_refused_with_those_that_are(text: Path, tmp_path: Path) -> None:
    start("gru", text, tmp_path / "run", {"train.steps": 8})
    with pytest.raises(UserError, match=r"no checkpoint of step 7\nthose that are there: step 8 \(best\), step 6"):
        train(out=tmp_path / "run", resume=7, display=Heard())
    said = call("train", "--resume", "lstm", "--out", str(tmp_path / "run"))
    assert said.code == 2
    assert "'lstm' was named too" in said.err


# ------------------------------------------------------------------ killed too early


def leave_lock(run: Path) -> None:
    """As a process that is killed leaves it."""
    (run / lock.LOCK).write_text('{"pid": 4194305, "host": "elsewhere", "since": "2026-11-16T00:00:00+00:00"}')


def test_a_run_killed_before_its_first_save_starts_again(text: Path, tmp_path: Path) -> None:
    whole, out = evidence(start("gru", text, tmp_path / "whole")), tmp_path / "run"
    for settings in (FAMILIES["lstm"], {}):  # another model before, whose attempt leaves no trace
        with pytest.raises(Cut):
            start("lstm" if settings else "gru", text, out, settings, on_step=at(3, crash))
        leave_lock(out)
        assert steps_in(out) == [0]
    assert evidence(start("gru", text, out)) == whole


def test_a_run_killed_later_does_not(text: Path, tmp_path: Path) -> None:
    with pytest.raises(Cut):
        start("gru", text, tmp_path / "run", on_step=at(5, crash))
    leave_lock(tmp_path / "run")
    with pytest.raises(UserError, match="already holds a run"):
        start("gru", text, tmp_path / "run")
    assert newest_verified(tmp_path / "run")[0] is not None


@pytest.mark.parametrize("number", range(1, 6))
def test_a_counting_run_killed_at_any_write_starts_again(number: int, text: Path, tmp_path: Path) -> None:
    out, honest, writes = tmp_path / "run", checkpoint.sha256, iter(range(1, 99))

    def killed(path: Path) -> str:
        return crash() or "" if next(writes) == number else honest(path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "sha256", killed)
        if number == 5:
            patch.setattr(checkpoint, "write", lambda *_: crash())
        with pytest.raises(Cut):
            train("markov", data=text, out=out, display=Heard())
    leave_lock(out)
    assert train("markov", data=text, out=out, display=Heard()).outcome.step == 1


def test_a_folder_of_files_that_are_not_a_runs_is_left_alone(text: Path, tmp_path: Path) -> None:
    (tmp_path / lock.LOCK).write_text("the lock of another program")
    (tmp_path / "series.json").write_text("mine")
    with pytest.raises(UserError, match="other files in it"):
        start("gru", text, tmp_path)
    assert (tmp_path / "series.json").read_text() == "mine"


# ------------------------------------------------------------------ the disk


@pytest.mark.parametrize("code", [errno.EACCES, errno.EIO, errno.ESTALE])
def test_what_cannot_be_read_is_not_damaged(code: int, text: Path, tmp_path: Path) -> None:
    out, honest = tmp_path / "run", checkpoint.sha256
    start("gru", text, out, {"train.steps": 8})

    def failing(path: Path) -> str:
        if path.parent.name == "step-00000008" and path.name == "optimizer.safetensors":
            raise OSError(code, os.strerror(code), str(path))
        return honest(path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "sha256", failing)
        said = call("train", "--resume", "--out", str(out), "--set", "train.steps=12", "--quiet")
    assert said.code == 1
    assert "optimizer.safetensors" in said.err
    assert os.strerror(code) in said.err
    assert resume(out, {"train.steps": 12}).resumed_from == 8


def test_records_reach_the_disk_before_the_checkpoint(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what was recorded by the time of a save, a power cut takes nothing."""
    out, synced = tmp_path / "run", []
    fsync, honest = os.fsync, checkpoint.write_folder

    def watch(handle: int) -> None:
        fsync(handle)
        if os.path.samestat(os.fstat(handle), (out / "metrics.jsonl").stat()):
            synced.append((out / "metrics.jsonl").read_bytes())

    def saving(target: Path, files: Any) -> None:
        if (out / "metrics.jsonl").exists():
            assert synced[-1] == (out / "metrics.jsonl").read_bytes()
        honest(target, files)

    monkeypatch.setattr(folder, "write_folder", saving)
    monkeypatch.setattr(
        os, "fsync", lambda handle: watch(handle) if (out / "metrics.jsonl").exists() else fsync(handle)
    )
    start("gru", text, out, {"train.log_every": 1})
    assert len(synced) > 5


# ------------------------------------------------------------------ parts that were changed

FIRST, SECOND = ({"0.step": torch.tensor(6.0), "0.exp_avg": torch.full((3, 2), float(part))} for part in range(2))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"0.step": torch.tensor(4.0)}, "not of one step"),
        ({"0.exp_avg": torch.tensor(1.0)}, "different shapes or precisions"),
        ({"0.exp_avg": torch.ones(3, 2, dtype=torch.float16)}, "different shapes or precisions"),
        ({"0.exp_avg": torch.ones(3, 1)}, "different shapes or precisions"),
        ({"1.exp_avg": torch.ones(1)}, "different tensors"),
    ],
    ids=str,
)
def test_parts_that_do_not_belong_together_are_refused(
    changes: dict[str, torch.Tensor], said: str, tmp_path: Path
) -> None:
    paths = [tmp_path / "first", tmp_path / "second"]
    save_file(FIRST, paths[0])
    save_file(SECOND, paths[1])
    assert checkpoint.read_parts(paths)["0.exp_avg"].tolist() == [[0, 0]] * 3 + [[1, 1]] * 3
    save_file({**SECOND, **changes}, paths[1])
    with pytest.raises(UserError, match=said):
        checkpoint.read_parts(paths)


@pytest.mark.parametrize(
    "changes",
    [{"step": torch.tensor(-1.0)}, {"step": torch.tensor(torch.nan)}, {"exp_avg": torch.ones(2).bool()}],
    ids=str,
)
def test_what_no_optimizer_holds_is_refused(changes: dict[str, torch.Tensor]) -> None:
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.ones(2))])
    held = {"step": torch.tensor(3.0), "exp_avg": torch.ones(2), "exp_avg_sq": torch.ones(2)}
    restore_optimizer(optimizer, {f"0.{name}": value for name, value in held.items()})
    with pytest.raises(UserError, match="does not fit this model"):
        restore_optimizer(optimizer, {f"0.{name}": value for name, value in {**held, **changes}.items()})


def test_a_step_before_the_first_is_damage(tmp_path: Path) -> None:
    (tmp_path / "progress.json").write_text('{"step": -1}')
    with pytest.raises(UserError, match="not the record of a run"):
        folder.read_progress(tmp_path)
