"""Whatever fails after training began leaves a run that can be resumed exactly; what never began can be repeated."""

import errno
import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from covering import covered
from tiny_run import BASE, FAMILIES, at, call, evidence, options, resume, start, write_text

from statewise.disk import locked
from statewise.specs import UserError
from statewise.tasks import LanguageModelJob, train
from statewise.tasks.classification import ClassificationJob
from statewise.tasks.translation import TranslationJob
from statewise.training import journal
from statewise.training.folder import RunFolder, newest_verified
from statewise.training.optimizer import Average
from statewise.training.progress import Silent

TASKS: dict[str, tuple[type, dict[str, Any]]] = {
    "translation": (TranslationJob, {"model.encoder.width": 8, "model.decoder.width": 8, "decoding.watch": 4}),
    "classification": (ClassificationJob, {"model.width": 8, "model.embedding": 8}),
}
SHORT = {"train.steps": 6, "train.batch": 4, "train.warmup": 1, "train.evaluate_every": 3, "train.save_every": 100}


class Failure(Exception):
    """Stands for anything: a missing library, a bug in a metric, a device that went away."""


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_text(tmp_path_factory.mktemp("text"))


def fail_at(patch: pytest.MonkeyPatch, owner: Any, name: str, number: int, error: Exception) -> None:
    """The `number`-th call of a function raises."""
    honest, calls = getattr(owner, name), iter(range(1, 1000))

    def called(*arguments: Any, **more: Any) -> Any:
        if next(calls) == number:
            raise error
        return honest(*arguments, **more)

    patch.setattr(owner, name, called)


def failing(owner: Any, name: str, number: int, run: Callable[[], Any], error: Exception | None = None) -> Exception:
    """What a run raises if the `number`-th call of a function fails."""
    error = error or Failure("no such luck")
    with pytest.MonkeyPatch.context() as patch:
        fail_at(patch, owner, name, number, error)
        with pytest.raises(type(error)) as caught:
            run()
    return caught.value


@covered("kind, number", list(FAMILIES), [1, 3], strength=1)
def test_a_failing_evaluation(kind: str, number: int, text: Path, tmp_path: Path) -> None:
    settings = {**FAMILIES[kind], "train.save_every": 1000}
    whole = evidence(start(kind, text, tmp_path / "whole", settings))
    out = tmp_path / "run"
    error = failing(LanguageModelJob, "evaluate", number, lambda: start(kind, text, out, settings))
    checkpoint, skipped = newest_verified(out)
    assert checkpoint is not None
    assert (checkpoint.progress["evaluated"], skipped) == (False, [])
    on = f'continue with: statewise.train(resume=True, out="{out}")'
    saved = f"training is saved up to step {checkpoint.step}; {on}"
    assert error.__notes__ == [saved]
    # It fails once more where it failed before: nothing is lost, and nothing is trained twice.
    assert failing(LanguageModelJob, "evaluate", 1, lambda: resume(out)).__notes__ == [saved]
    assert evidence(resume(out)) == whole


@pytest.mark.parametrize("task", ["translation", pytest.param("classification", marks=pytest.mark.slow)])
def test_a_failing_first_evaluation_of_other_tasks(task: str, tmp_path: Path) -> None:
    job, settings = TASKS[task]

    def begin(name: str) -> Any:
        return train(task, settings={**settings, **SHORT}, out=tmp_path / name, display=Silent())

    whole = evidence(begin("whole"))
    failing(job, "evaluate", 1, lambda: begin("run"))
    trained = resume(tmp_path / "run")
    assert trained.resumed_from == 3
    assert evidence(trained) == whole


@pytest.mark.parametrize("kind", ["elman", "lstm"])
def test_a_step_that_fails_before_its_update(kind: str, text: Path, tmp_path: Path) -> None:
    """In the middle of the gradient: the state that was carried so far is the one before the step."""
    settings = {**FAMILIES[kind], "train.save_every": 1000, "train.evaluate_every": 1000, "train.average": 0.9}
    whole = evidence(start(kind, text, tmp_path / "whole", settings))
    failing(LanguageModelJob, "loss", 29, lambda: start(kind, text, tmp_path / "run", settings))
    checkpoint, _ = newest_verified(tmp_path / "run")
    assert checkpoint is not None
    assert checkpoint.step > 1
    assert evidence(resume(tmp_path / "run")) == whole


def test_a_step_that_fails_in_its_update_is_not_saved(text: Path, tmp_path: Path) -> None:
    out, settings = tmp_path / "run", {"train.average": 0.9}
    whole = evidence(start("gru", text, tmp_path / "whole", settings))
    error = failing(Average, "add", 10, lambda: start("gru", text, out, settings))
    assert "step 9 could not be saved (it stopped in the middle of an update)" in error.__notes__[0]
    assert "the last checkpoint is of step 8" in error.__notes__[0]
    assert evidence(resume(out)) == whole


def test_what_watches_the_steps_may_fail(text: Path, tmp_path: Path) -> None:
    whole = evidence(start("gru", text, tmp_path / "whole"))

    def fail() -> None:
        raise Failure

    with pytest.raises(Failure):
        start("gru", text, tmp_path / "run", on_step=at(11, fail))
    trained = resume(tmp_path / "run")
    assert trained.resumed_from == 11
    assert evidence(trained) == whole


# ------------------------------------------------------------------ full disks


FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "metrics.jsonl")


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_disk_that_is_full_at_a_record(number: int, text: Path, tmp_path: Path) -> None:
    """Every step is recorded, in two files; the third record is that of an evaluation."""
    settings = {"train.log_every": 3, "train.evaluate_every": 3, "train.save_every": 1000}
    whole = evidence(start("gru", text, tmp_path / "whole", settings))
    out = tmp_path / "run"
    error = failing(journal, "_append", number, lambda: start("gru", text, out, settings), FULL)
    assert "training is saved up to step 3" in error.__notes__[-1]
    found = evidence(resume(out))
    assert {**found, "metrics": ""} == {**whole, "metrics": ""}
    if number == 3:  # the evaluation is made again, so its record is there
        assert found["metrics"] == whole["metrics"]


def test_a_full_disk_before_any_step_is_saved_is_said_and_the_folder_is_used_again(text: Path, tmp_path: Path) -> None:
    whole, out = evidence(start("gru", text, tmp_path / "whole")), tmp_path / "run"
    command = ("train", "gru", "--text", str(text), "--out", str(out), *options({"train.log_every": 2}))
    with pytest.MonkeyPatch.context() as patch:
        fail_at(patch, journal, "_append", 1, FULL)
        fail_at(patch, RunFolder, "save", 2, FULL)
        said = call(*command)
    assert (said.code, "Traceback" in said.err) == (1, False)
    assert "step 2 could not be saved" in said.err
    assert f"the last checkpoint is of step 0; continue with: statewise train --resume --out {out}" in said.err
    assert evidence(start("gru", text, out)) == whole


# ------------------------------------------------------------------ folders


def test_the_command_line_says_how_to_continue(text: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch:
        fail_at(patch, LanguageModelJob, "evaluate", 1, UserError("a library is missing", fix="install it"))
        said = call("train", "gru", "--text", str(text), "--out", str(out), "--quiet", *options())
    assert said.code == 2
    assert said.err.splitlines()[-3:] == [
        "error: a library is missing",
        "install it",
        f"training is saved up to step 6; continue with: statewise train --resume --out {out}",
    ]
    said = call("train", "--resume", "--out", str(out), "--quiet")
    assert said.code == 0, said.err


def test_a_folder_in_which_nothing_was_trained_is_used_again(text: Path, tmp_path: Path) -> None:
    whole, out = evidence(start("gru", text, tmp_path / "whole")), tmp_path / "run"
    failing(LanguageModelJob, "window", 1, lambda: start("gru", text, out))
    assert {path.name for path in out.iterdir()} >= {"environment.json"}
    (out / "metrics.jsonl").write_text('{"step": 0, "loss": 1.0}\n')  # an earlier attempt's
    (out / "checkpoints").mkdir(exist_ok=True)
    assert evidence(start("gru", text, out)) == whole


@pytest.mark.parametrize("other", ["notes.txt", "model.safetensors", "run.toml"])
def test_a_folder_with_anything_else_is_not(other: str, text: Path, tmp_path: Path) -> None:
    (tmp_path / "environment.json").write_text("{}")
    (tmp_path / other).write_text("mine")
    with pytest.raises(UserError, match=r"other files in it|already holds a run"):
        start("gru", text, tmp_path)
    assert (tmp_path / other).read_text() == "mine"


def test_a_folder_in_use_is_not(text: Path, tmp_path: Path) -> None:
    with locked(tmp_path), pytest.raises(UserError, match=f"another process is at work in .*: process {os.getpid()}"):
        start("gru", text, tmp_path)
    assert start("gru", text, tmp_path).outcome.step == 24


def while_it_reads(patch: pytest.MonkeyPatch, action: Callable[[], Any]) -> None:
    """Do something while the first training from now reads its text."""
    honest, waiting = LanguageModelJob.open, [action]

    def opened(*arguments: Any) -> Any:
        while waiting:
            waiting.pop()()
        return honest(*arguments)

    patch.setattr(LanguageModelJob, "open", opened)


def test_two_trainings_at_once_have_a_folder_each(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    trained = []

    def begin() -> None:
        trained.append(train("gru", settings=BASE, data=text, display=Silent()))

    while_it_reads(monkeypatch, begin)
    begin()
    assert [one.path for one in trained] == [Path("runs/gru-2"), Path("runs/gru")]
    assert evidence(trained[0]) == evidence(trained[1])


def test_two_trainings_at_once_do_not_share_a_named_folder(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []

    def intrude() -> None:
        with pytest.raises(UserError) as caught:
            start("lstm", text, tmp_path / "run")
        said.append(str(caught.value))

    while_it_reads(monkeypatch, intrude)
    assert start("gru", text, tmp_path / "run").outcome.step == 24
    assert f"process {os.getpid()} on {platform.node()}, since 20" in said[0]


def test_a_second_resume_is_refused_and_told_who_is_at_work(text: Path, tmp_path: Path) -> None:
    out, seen = tmp_path / "run", []
    start("gru", text, out, {"train.steps": 6})

    def intrude() -> None:
        with pytest.raises(UserError, match=f"another process is at work in .*: process {os.getpid()} on .*, since 20"):
            resume(out)
        seen.append(1)

    assert resume(out, {"train.steps": 12}, on_step=at(8, intrude)).outcome.step == 12
    assert seen == [1]


@pytest.mark.parametrize("out", [None, "run"])
def test_a_mistake_leaves_no_folder_behind(out: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="does not exist"):
        train("gru", data=Path("nowhere.txt"), out=out, display=Silent())
    assert not list(tmp_path.iterdir())
