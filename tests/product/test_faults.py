"""What a run survives, in small; `benchmarks/faults.py` does the same at full size and prints a table."""

import errno
import importlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from tiny_run import BASE, ROOT, call, environment, evidence, options, resume, start, write_text

from statewise.specs import UserError
from statewise.tasks import LanguageModelJob, load
from statewise.training import NonFinite, Stopped
from statewise.training import checkpoint as checkpoint_module
from statewise.training.checkpoint import MANIFEST
from statewise.training.folder import newest_verified, weights_sha256


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_text(tmp_path_factory.mktemp("text"))


@pytest.fixture(scope="module")
def uncut(text: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return evidence(start("gru", text, tmp_path_factory.mktemp("uncut") / "gru"))


@pytest.fixture(scope="module")
def folders() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        yield importlib.import_module("fault_folders")


# ------------------------------------------------------------------ signals


def spawn(*argv: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "statewise", *argv],
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_until(true: Callable[[], bool], child: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert child.poll() is None, child.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow)]
)
def test_a_signal_while_stepping(number: signal.Signals, code: int, text: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    endless = {"train.steps": 10**6, "train.save_every": 10**6, "train.evaluate_every": 10**6, "train.log_every": 1}
    child = spawn("train", "gru", "--text", str(text), "--out", str(out), *options(endless))
    wait_until((out / "metrics.jsonl").exists, child)
    child.send_signal(number)
    _, err = child.communicate(timeout=30)
    assert child.returncode == code
    checkpoint, skipped = newest_verified(out)
    assert checkpoint is not None
    assert not skipped
    assert f"stopped by signal {int(number)} after step {checkpoint.step}; to continue: statewise train --resume" in err
    assert "Traceback" not in err
    steps = checkpoint.step + 2
    assert resume(out, {"train.steps": steps, "train.evaluate_tokens": 50}).outcome.step == steps


@pytest.mark.slow
def test_a_signal_while_evaluating(tmp_path: Path) -> None:
    """The validation text takes far longer to read than a run may take to leave.

    By day, `test_resume` raises the signal during an evaluation of this process.
    """
    text, held, out = write_text(tmp_path), tmp_path / "held.txt", tmp_path / "run"
    held.write_text("the cat sat on the mat. " * 200_000)
    settings = {**BASE, "train.log_every": 1, "train.evaluate_every": 2, "data.validation": f'"{held}"'}
    settings["train.evaluate_tokens"] = "none"
    words = [word for path, value in settings.items() for word in ("--set", f"{path}={value}")]
    child = spawn("train", "gru", "--text", str(text), "--out", str(out), *words)
    wait_until(lambda: (out / "metrics.jsonl").exists() and '"step": 2' in (out / "metrics.jsonl").read_text(), child)
    time.sleep(0.2)
    sent = time.monotonic()
    child.send_signal(signal.SIGTERM)
    child.communicate(timeout=30)
    assert child.returncode == 143
    assert time.monotonic() - sent < 10
    checkpoint, _ = newest_verified(out)
    assert checkpoint is not None
    assert checkpoint.step == 2
    assert checkpoint.progress["evaluated"] is False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_saving(number: signal.Signals, text: Path, uncut: dict[str, Any], tmp_path: Path) -> None:
    out, honest, calls = tmp_path / "run", checkpoint_module.sha256, iter(range(99))

    def sha256(path: Path) -> str:
        if next(calls) == 10:  # in the middle of the second save; the first is that of step 0
            signal.raise_signal(number)
        return honest(path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint_module, "sha256", sha256)
        with pytest.raises(Stopped) as caught:
            start("gru", text, out)
    assert (caught.value.step, caught.value.exit_code) == (5, 128 + number)  # the save was whole, one step followed
    assert evidence(resume(out)) == uncut


def test_a_signal_before_the_first_step(
    text: Path, uncut: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = LanguageModelJob.__init__

    def init(self: LanguageModelJob, *arguments: Any, **more: Any) -> None:
        signal.raise_signal(signal.SIGTERM)
        honest(self, *arguments, **more)

    with monkeypatch.context() as patch:
        patch.setattr(LanguageModelJob, "__init__", init)
        said = call("train", "gru", "--text", str(text), "--out", str(tmp_path / "run"), *options())
    assert said.code == 143
    assert "after step 1;" in said.err
    assert evidence(resume(tmp_path / "run")) == uncut


SECOND = """
import os, signal, sys
from statewise.training.stop import Signals
for number in (signal.SIGTERM, signal.SIGINT):
    if (child := os.fork()) == 0:
        with Signals() as signals:
            signal.raise_signal(number)
            assert signals.received == number
            signal.raise_signal(number)
            os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_who_insists_gets_out_at_once() -> None:
    done = subprocess.run([sys.executable, "-c", SECOND], env=environment(), capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(-signal.SIGTERM), str(-signal.SIGINT)]


# ------------------------------------------------------------------ values that are not finite


@pytest.mark.parametrize(
    ("what", "named"),
    [
        ("weight", "weight head.weight_VE is not finite at step 10"),
        ("gradient", "the gradient of head.bias_V is not finite at step 10"),
        ("loss", "the loss is not finite at step 10"),
    ],
)
def test_a_non_finite_value_ends_the_run_with_its_name(
    what: str, named: str, text: Path, uncut: dict[str, Any], tmp_path: Path
) -> None:
    out, honest, calls = tmp_path / "run", LanguageModelJob.loss, iter(range(1, 99))

    def loss(self: LanguageModelJob, model: Any, *arguments: Any) -> Any:
        value, state = honest(self, model, *arguments)
        if next(calls) == 10:
            if what == "weight":
                with torch.no_grad():
                    model.head.weight_VE[0, 0] = torch.inf
                value, state = honest(self, model, *arguments)
            elif what == "gradient":
                model.head.bias_V.register_hook(lambda gradient: gradient * torch.nan)
            else:
                value = value * torch.nan
        return value, state

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LanguageModelJob, "loss", loss)
        said = call("train", "gru", "--text", str(text), "--out", str(out), *options())
    assert said.code == 3
    assert named in said.err
    assert "checkpoints that are kept: step 8, step 6 (best); to continue" in said.err
    assert f"statewise train --resume --out {out}; from another: --resume best or --resume N" in said.err
    checkpoint, skipped = newest_verified(out)
    assert checkpoint is not None
    assert (checkpoint.step, skipped) == (8, [])
    assert evidence(resume(out)) == uncut


def test_a_non_finite_evaluation_is_not_published(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LanguageModelJob, "evaluate", lambda *_: {"nats": float("nan")})
    with pytest.raises(NonFinite, match="the validation nats is not finite at step 6; nothing was saved"):
        start("gru", text, tmp_path / "run")
    assert not (tmp_path / "run/model.safetensors").exists()


# ------------------------------------------------------------------ disks


def fail_write(patch: pytest.MonkeyPatch, k: int, code: int) -> None:
    """The k-th write of a save and all after it fail."""
    left = [k]

    def failing(honest: Callable[..., Any]) -> Callable[..., Any]:
        def write(first: Any, *arguments: Any, **more: Any) -> Any:
            left[0] -= 1
            if left[0] < 0:
                if isinstance(first, dict):
                    raise SafetensorError(f"I/O error: {os.strerror(code)} (os error {code})")
                raise OSError(code, os.strerror(code), str(first))
            return honest(first, *arguments, **more)

        return write

    patch.setattr(checkpoint_module, "save_file", failing(checkpoint_module.save_file))
    patch.setattr(Path, "write_bytes", failing(Path.write_bytes))
    for name in ("replace", "fsync"):
        patch.setattr(os, name, failing(getattr(os, name)))


@pytest.mark.parametrize("code", [errno.ENOSPC, pytest.param(errno.EROFS, marks=pytest.mark.slow)])
def test_a_disk_that_fails_at_any_write(code: int, text: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    start("gru", text, out, {"train.steps": 4})
    failures = 0
    for k in range(0, 200, 5):
        before, _ = newest_verified(out)
        assert before is not None
        with pytest.MonkeyPatch.context() as patch:
            fail_write(patch, k, code)
            said = call("train", "--resume", "--out", str(out), "--set", "train.steps=8", "--quiet")
        after, _ = newest_verified(out)
        assert after is not None
        assert after.step >= before.step
        assert weights_sha256(load(out).model)
        if said.code == 0:
            break
        failures += 1
        assert said.code == 1
        assert os.strerror(code) in said.err
        assert "what was saved before is intact" in said.err
    assert failures >= 5
    assert resume(out).outcome.step == 8
    assert not [path for path in out.rglob("*") if path.name.startswith(".tmp-")]


# ------------------------------------------------------------------ damage


@pytest.mark.parametrize("count", [60, pytest.param(200, marks=pytest.mark.slow)])
def test_damaged_folders_are_refused_or_fallen_back_from(
    count: int, folders: ModuleType, text: Path, tmp_path: Path
) -> None:
    pattern = folders.make_pattern(text, tmp_path)
    results = [folders.try_damaged(pattern, number, tmp_path) for number in range(10_000, 10_000 + count)]
    assert [problem for _, problem in results if problem is not None] == []
    endings = [ending for ending, _ in results]
    assert endings.count("refused") > 0.15 * count
    assert endings.count("fallen back") > 0.15 * count


def test_each_kind_of_damage_by_itself(folders: ModuleType, text: Path, tmp_path: Path) -> None:
    """Every kind is tried on the top of the run; what loads has weights that were once saved."""
    pattern = folders.make_pattern(text, tmp_path)
    for number, (kind, harm) in enumerate(importlib.import_module("damage").DAMAGES.items()):
        run, marker = tmp_path / f"run-{number}", tmp_path / f"outside-{number}/marker"
        shutil.copytree(pattern.path, run)
        marker.parent.mkdir()
        harm(run, run / "tokenizer.json", run / "model.safetensors", random.Random(number), marker)
        with suppress(UserError):
            assert weights_sha256(load(run).model) in pattern.good, kind
        assert not marker.exists(), kind


def test_a_fallback_says_what_it_skipped_and_takes_the_best(text: Path, tmp_path: Path) -> None:
    trained = start("gru", text, tmp_path / "run")
    good = weights_sha256(load(trained.path).model)
    (trained.path / "model.safetensors").write_bytes(b"")
    opened = load(trained.path)
    assert opened.skipped == ["run: model.safetensors has 0 bytes, " + opened.skipped[0].split("bytes, ")[1]]
    assert weights_sha256(opened.model) == good
    for manifest in trained.path.glob(f"checkpoints/*/{MANIFEST}"):
        manifest.unlink()
    with pytest.raises(UserError, match=f"no {MANIFEST}"):
        load(trained.path)


def test_an_average_that_nobody_vouches_for_is_ignored(text: Path, tmp_path: Path) -> None:
    trained = start("gru", text, tmp_path / "run")
    good = weights_sha256(load(trained.path).model)
    zeros = {name: value * 0 for name, value in load_file(trained.path / "model.safetensors").items()}
    save_file(zeros, trained.path / "average.safetensors")
    assert weights_sha256(load(trained.path).model) == good


# ------------------------------------------------------------------ kill -9


@pytest.mark.parametrize("kills", [3, pytest.param(8, marks=pytest.mark.slow)])
def test_kill_while_saving_small(kills: int) -> None:
    """Some kills of one run, in a process that imports torch once and forks."""
    argv = [sys.executable, str(ROOT / "benchmarks/faults.py"), "--only", "kills", "--kills", str(kills)]
    done = subprocess.run(argv, env=environment(), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert f"| kill -9 while saving | {kills} | {kills} |" in done.stdout
