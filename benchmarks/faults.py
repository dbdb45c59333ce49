"""What a run survives: kill -9 while saving, signals in every phase, a full disk, damaged folders, cuts.

    python benchmarks/faults.py [--kills 200] [--folders 5000] [--signals 20] [--quick] [--only kills]

torch is imported once; every trial is a fork of that process that runs the real command line. Prints a
table and leaves with 1 if any trial failed.
"""

import argparse
import errno
import faulthandler
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

os.environ["OMP_NUM_THREADS"] = "1"

import torch
from damage import damage
from safetensors import SafetensorError
from torch.utils.tensorboard import writer as _writer  # noqa: F401  (imported before the forks)

from statewise import cli, load
from statewise.models import LINEAGE
from statewise.specs import UserError
from statewise.tasks import LanguageModelJob, train
from statewise.training import checkpoint as checkpoint_module
from statewise.training.checkpoint import sha256
from statewise.training.folder import newest_verified, step_folders, weights_sha256
from statewise.training.progress import Silent

TEXT = "the cat sat on the mat and the dog sat on the log, so the cat and the dog sat. " * 40
TINY = {
    "model.width": 8,
    "train.batch": 4,
    "train.window": 8,
    "train.truncation": 8,
    "train.schedule": "constant",
    "train.log_every": 1,
    "train.evaluate_every": 5,
    "train.evaluate_tokens": 100,
    "train.save_every": 1,
}
STEPS = 30  # of a run that is cut
EXTRAS: dict[str, dict[str, Any]] = {
    "elman": {"data.order": "random", "train.accumulate": 3},
    "gru": {"train.optimizer": "asgd", "train.trigger": 1, "train.lr": 10.0, "train.schedule": "plateau"},
    "lstm": {"model.dropout": 0.3, "model.weight_drop": 0.3, "model.variational": True, "train.truncation": "random:4"},
}


class Row(NamedTuple):
    fault: str
    trials: int
    passed: int
    seen: str
    seconds: float


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# ------------------------------------------------------------------ a command in a fork


class Child:
    """`statewise ...` in a fork of this process, so that it starts at once."""

    def __init__(self, argv: list[str], log: Path, *, prepare: Callable[[], None] | None = None) -> None:
        self.log = log
        self.parent = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            code = 70
            try:
                handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
                os.dup2(handle, 1)
                os.dup2(handle, 2)
                sys.argv = ["statewise", *argv]
                threading.Thread(target=self._end_with_parent, daemon=True).start()
                if prepare is not None:
                    prepare()
                code = cli._run()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)

    def _end_with_parent(self) -> None:
        while os.getppid() == self.parent:
            time.sleep(0.5)
        os._exit(71)

    def wait(self) -> int:
        """The exit code, or minus the signal that ended it."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def gone(self) -> bool:
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def said(self) -> str:
        return self.log.read_text(errors="replace")


def words(settings: dict[str, Any]) -> list[str]:
    return [word for path, value in settings.items() for word in ("--set", f"{path}={json.dumps(value)}")]


def fresh(kind: str, text: Path, out: Path, **settings: Any) -> list[str]:
    merged = {**TINY, **{name.replace("__", "."): value for name, value in settings.items()}}
    return ["train", kind, "--text", str(text), "--out", str(out), "--quiet", *words(merged)]


def again(out: Path, **settings: Any) -> list[str]:
    return ["train", "--resume", "--out", str(out), "--quiet", *words({f"train.{k}": v for k, v in settings.items()})]


def losses(out: Path) -> list[str]:
    return [line for line in (out / "metrics.jsonl").read_text().splitlines() if '"loss"' in line]


def litter(out: Path) -> list[str]:
    # `os.walk`: a folder may vanish while it is looked at.
    found = [os.path.join(folder, name) for folder, *names in os.walk(out) for some in names for name in some]
    return [path for path in found if os.path.basename(path).startswith(".tmp-") or path.endswith("~")]


# ------------------------------------------------------------------ kill -9


def kills(count: int, text: Path, home: Path) -> Iterator[Row]:
    """One run, killed again and again in the middle of saving; compared with a run that never was."""
    began, dice, out = time.monotonic(), random.Random(1), home / "killed"
    endless = {"train__steps": 10**6, "train__evaluate_every": 10**6}
    passed, lost, inside, before = 0, 0, 0, 0
    for number in range(count):
        child = Child(again(out) if number else fresh("gru", text, out, **endless), home / "log")
        newest = wait_for_save(out, child, after=before)
        # What the kill before left must be gone now that a save has completed.
        clean = newest is not None and not [name for name in litter(out) if not in_progress(name, child)]
        time.sleep(dice.uniform(0, 0.05))
        aim(out, child, dice)
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        inside += bool(litter(out))
        checkpoint, skipped = newest_verified(out)
        logged = len(losses(out))
        found = checkpoint.step if checkpoint is not None else 0
        lost = max(lost, logged - found)
        good = clean and checkpoint is not None and not skipped and logged - found <= 1
        passed += good
        if not good:
            say(f"kill {number}: clean {clean}, at {found} of {logged}, skipped {skipped}: {child.said()}")
        before = found
        if number % 20 == 19:
            say(f"kills: {number + 1} of {count}, at step {found}")
    last = before + 3
    code = Child(again(out, steps=last), home / "log").wait()
    whole = Child(fresh("gru", text, home / "whole", train__steps=last, train__save_every=10**6), home / "log").wait()
    same = code == whole == 0 and losses(out) == losses(home / "whole") and not litter(out)
    seen = (
        f"{inside} inside a save; at most {lost} step lost; no litter after the next save; after all of them the run "
    )
    seen += "is bit-identical to an uncut one" if same else "is NOT the uncut one"
    yield Row("kill -9 while saving", count, passed if same else 0, seen, time.monotonic() - began)


def wait_for_save(out: Path, child: Child, *, after: int) -> int | None:
    """The first step saved by this child."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and not child.gone():
        steps = [step for _, step in step_folders(out / "checkpoints")]
        if steps and steps[0] > after:
            return steps[0]
        time.sleep(0.001)
    return None


def in_progress(name: str, child: Child) -> bool:
    """Whether litter belongs to the save going on now: it has gone a moment later."""
    deadline = time.monotonic() + 5
    while Path(name).exists():
        if time.monotonic() > deadline or child.gone():
            return False
        time.sleep(0.001)
    return True


def aim(out: Path, child: Child, dice: random.Random) -> None:
    """Wait for the beginning of a save, then a random part of one."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline and not child.gone():
        if any(name.startswith(".tmp-") for name in os.listdir(out / "checkpoints")):
            break
    time.sleep(dice.uniform(0, 0.006))


# ------------------------------------------------------------------ signals


def announce(pipe: int, owner: Any, name: str, *, when: Callable[[], bool] = lambda: True) -> Callable[[], None]:
    """In the child: say that the phase has begun, and stay in it for a moment."""

    def prepare() -> None:
        honest, told = getattr(owner, name), []

        def slow(*arguments: Any, **options: Any) -> Any:
            if not told and when():
                told.append(True)
                os.write(pipe, b"!")
                time.sleep(0.03)
            return honest(*arguments, **options)

        setattr(owner, name, slow)

    return prepare


def signals(count: int, text: Path, home: Path) -> Iterator[Row]:
    """A real signal in each phase: exit code, a checkpoint of that very step, and a resume that changes nothing."""
    dice = random.Random(2)
    whole = home / "signals-whole"
    Child(fresh("lstm", text, whole, train__steps=12), home / "log").wait()
    expected = sha256(whole / "model.safetensors"), (whole / "metrics.jsonl").read_bytes()
    for phase, owner, name in (
        ("warm-up", LanguageModelJob, "build"),
        ("a step", LanguageModelJob, "loss"),
        ("evaluation", LanguageModelJob, "evaluate"),
        ("a save", checkpoint_module, "sha256"),
    ):
        began, passed, slowest = time.monotonic(), 0, 0.0
        for number in range(count):
            wanted = (signal.SIGTERM, signal.SIGINT)[number % 2]
            out = home / f"signal-{phase.replace(' ', '-')}-{number}"
            inward, outward = os.pipe()
            child = Child(
                fresh("lstm", text, out, train__steps=12),
                home / "log",
                prepare=announce(outward, owner, name),
            )
            os.close(outward)
            os.read(inward, 1)
            os.close(inward)
            time.sleep(dice.uniform(0, 0.02))
            sent = time.monotonic()
            os.kill(child.pid, wanted)
            code = child.wait()
            slowest = max(slowest, time.monotonic() - sent)
            stop = re.search(r"after step (\d+)", child.said())
            checkpoint, skipped = newest_verified(out)
            stopped = stop is not None and checkpoint is not None and checkpoint.step == int(stop[1]) and not skipped
            code_after = Child(again(out), home / "log-after").wait()
            same = code_after == 0 and expected == (
                sha256(out / "model.safetensors"),
                (out / "metrics.jsonl").read_bytes(),
            )
            good = code == 128 + wanted and stopped and same and not litter(out)
            passed += good
            if not good:
                say(f"signal in {phase}: code {code}, stopped {stopped}, same {same}: {child.said()}")
            shutil.rmtree(out, ignore_errors=True)
        say(f"signals in {phase}: {passed} of {count}")
        seen = f"exit 143 or 130, saved at that step, resumed bit-exact; slowest {slowest:.2f} s"
        yield Row(f"SIGTERM, SIGINT in {phase}", count, passed, seen, time.monotonic() - began)


# ------------------------------------------------------------------ a full disk, a read-only one


def failing(k: int, code: int) -> Callable[[], None]:
    """In the child: the k-th write and all after it fail, as on a full or read-only disk."""

    def prepare() -> None:
        left = [k]

        def due() -> bool:
            left[0] -= 1
            return left[0] < 0

        def plain(honest: Callable[..., Any]) -> Callable[..., Any]:
            def write(first: Any, *arguments: Any, **options: Any) -> Any:
                if due():
                    raise OSError(code, os.strerror(code), str(first))
                return honest(first, *arguments, **options)

            return write

        def tensors(honest: Callable[..., Any]) -> Callable[..., Any]:
            def write(content: Any, path: Path, **options: Any) -> None:
                if due():
                    path.write_bytes(b"\x40")
                    raise SafetensorError(f"I/O error: {os.strerror(code)} (os error {code})")
                honest(content, path, **options)

            return write

        def opened(honest: Callable[..., Any]) -> Callable[..., Any]:
            def open_(self: Path, mode: str = "r", *arguments: Any, **options: Any) -> Any:
                if mode[0] in "wax" and due():
                    raise OSError(code, os.strerror(code), str(self))
                return honest(self, mode, *arguments, **options)

            return open_

        def made(honest: Callable[..., Any]) -> Callable[..., Any]:
            def mkdir(self: Path, *arguments: Any, **options: Any) -> None:
                if not self.exists() and due():
                    raise OSError(code, os.strerror(code), str(self))
                honest(self, *arguments, **options)

            return mkdir

        checkpoint_module.save_file = tensors(checkpoint_module.save_file)
        Path.open = opened(Path.open)
        Path.mkdir = made(Path.mkdir)
        os.replace, os.fsync = plain(os.replace), plain(os.fsync)

    return prepare


def full_disk(text: Path, home: Path, *, every: int) -> Iterator[Row]:
    """Each write point in turn: the command says so and leaves with 1; what was saved before stays whole."""
    before = home / "disk"
    Child(fresh("gru", text, before, train__steps=2), home / "log").wait()
    for fault, code in (("disk full", errno.ENOSPC), ("disk read-only", errno.EROFS)):
        began, passed, trials, finished, out = time.monotonic(), 0, 0, False, home / "disk-failing"
        while not finished:
            shutil.copytree(before, out)
            child = Child(again(out, steps=3), home / "log", prepare=failing(trials * every, code))
            ended = child.wait()
            finished = ended == 0
            checkpoint, _ = newest_verified(out)
            whole = checkpoint is not None and checkpoint.step in (2, 3) and weights_sha256(load(out).model) != ""
            spoke = os.strerror(code) in child.said() and "Traceback" not in child.said()
            mended = Child(again(out, steps=3), home / "log-after").wait() == 0 and not litter(out)
            good = whole and mended and (finished or (ended == 1 and spoke))
            trials += 1
            passed += good
            if not good:
                say(f"{fault}, write {trials}: code {ended}, whole {whole}, mended {mended}: {child.said()}")
            shutil.rmtree(out)
        say(f"{fault}: {passed} of {trials} write points")
        seen = "exit 1 with the reason; the checkpoint before is whole; resumed without litter"
        yield Row(f"{fault}, at each write", trials, passed, seen, time.monotonic() - began)


# ------------------------------------------------------------------ damaged folders


class Pattern(NamedTuple):
    """A whole run to be damaged, and the weights it may honestly give."""

    path: Path
    good: frozenset[str]


def make_pattern(text: Path, home: Path) -> Pattern:
    settings = {**TINY, "train.steps": 6, "train.keep": 3, "train.evaluate_every": 2}
    trained = train("lstm", settings=settings, data=text, out=home / "pattern", display=Silent())
    good = {weights_sha256(load(trained.path).model)}
    for path, _ in step_folders(trained.path / "checkpoints"):
        good.add(weights_sha256(load(path).model))
    for extra in (*trained.path.glob("events.*"), trained.path / "timing.jsonl"):
        extra.unlink()
    return Pattern(trained.path, frozenset(good))


def try_damaged(pattern: Pattern, number: int, home: Path) -> tuple[str, str | None]:
    """Damage one copy and open it: how it ended (refused, fallen back, opened), and what was wrong with that."""
    dice, run, marker = random.Random(number), home / f"damaged-{number}", home / f"outside-{number}" / "marker"
    shutil.copytree(pattern.path, run)
    marker.parent.mkdir()
    try:
        done = "; ".join(damage(run, dice, marker) for _ in range(dice.choice([1, 1, 2, 3, 6])))
        problem = None
        try:
            opened = load(run, device="cpu")
            ending = "fallen back" if opened.skipped else "opened"
            if weights_sha256(opened.model) not in pattern.good:
                problem = "other weights"
        except UserError:
            ending = "refused"
        except BaseException as error:  # a panic of the libraries below is none of the others
            ending, problem = "crashed", repr(error)
        if number % 10 == 0 and problem is None:
            try:
                train(resume=True, out=run, display=Silent())
            except (UserError, OSError):  # the latter: a folder stands where a file is to be written
                pass
            except BaseException as error:
                problem = f"resume: {error!r}"
        if marker.exists():
            problem = "CODE WAS RUN"
        return ending, None if problem is None else f"{problem} after {done}"
    finally:
        shutil.rmtree(run, ignore_errors=True)
        shutil.rmtree(marker.parent, ignore_errors=True)


def damaged(count: int, pattern: Pattern, home: Path) -> Iterator[Row]:
    began = time.monotonic()
    endings: dict[str, int] = {}
    passed = 0
    for first in range(0, count, 250):
        numbers = range(first, min(first + 250, count))
        report = home / "report.json"
        report.unlink(missing_ok=True)
        child = os.fork()  # a process of its own: if a file can make it crash, that is counted, not suffered
        if child == 0:
            faulthandler.dump_traceback_later(100, exit=True)
            try:
                report.write_text(json.dumps([try_damaged(pattern, number, home) for number in numbers]))
            except BaseException as error:
                say(f"damaged: {error!r}")
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        results = json.loads(report.read_text()) if report.exists() else []
        for ending, problem in results:
            endings[ending] = endings.get(ending, 0) + 1
            passed += problem is None
            if problem is not None:
                say(f"damaged: {problem}")
        say(f"damaged folders: {passed} of {numbers.stop}")
    seen = ", ".join(f"{endings[name]} {name}" for name in sorted(endings)) + "; no crash, no code run"
    yield Row("damaged run folders", count, passed, seen, time.monotonic() - began)


# ------------------------------------------------------------------ cuts


def cuts(text: Path, home: Path, *, each: int) -> Iterator[Row]:
    """Killed at random steps and resumed: metrics, weights and published model equal the uncut run's."""
    began, passed = time.monotonic(), 0
    kinds = [row.spec.kind for row in LINEAGE if "width" in type(row.spec).model_fields]  # those that learn by steps
    for kind in kinds:
        good = sum(cut_once(kind, cut, text, home) for cut in random.Random(kind).sample(range(5, STEPS), each))
        say(f"cuts of {kind}: {good} of {each}")
        passed += good
    seen = f"{', '.join(kinds)}: metrics and weights byte for byte the uncut run's"
    yield Row("cut at a random step and resumed", each * len(kinds), passed, seen, time.monotonic() - began)


def cut_once(kind: str, cut: int, text: Path, home: Path) -> bool:
    settings: dict[str, Any] = {"train__steps": STEPS, "train__save_every": 4, "train__log_every": 3}
    settings |= {name.replace(".", "__"): value for name, value in EXTRAS.get(kind, {}).items()}
    whole, out = home / f"cut-{kind}", home / f"cut-{kind}-{cut}"
    if not whole.exists():
        Child(fresh(kind, text, whole, **settings), home / "log").wait()

    def end_at_cut() -> None:
        honest = LanguageModelJob.window

        def window(self: LanguageModelJob, step: int) -> Any:
            if step == cut:
                os.kill(os.getpid(), signal.SIGKILL)
            return honest(self, step)

        LanguageModelJob.window = window

    code = Child(fresh(kind, text, out, **settings), home / "log", prepare=end_at_cut).wait()
    child = Child(again(out), home / "log")
    resumed = child.wait()
    names = ("metrics.jsonl", "model.safetensors", f"checkpoints/step-{STEPS:08d}/model.safetensors")
    same = all((out / name).is_file() and (out / name).read_bytes() == (whole / name).read_bytes() for name in names)
    good = code == -signal.SIGKILL and resumed == 0 and same
    if not good:
        say(f"cut of {kind} at {cut}: code {code}, resumed {resumed}, same {same}: {child.said()}")
    return good


# ------------------------------------------------------------------ the table


@contextmanager
def workplace() -> Iterator[tuple[Path, Path]]:
    with tempfile.TemporaryDirectory(prefix="statewise-faults-") as name:
        home = Path(name)
        (home / "text.txt").write_text(TEXT)
        yield home / "text.txt", home


def table(rows: list[Row]) -> str:
    lines = ["| fault | trials | passed | seen | seconds |", "|---|---:|---:|---|---:|"]
    lines += [f"| {r.fault} | {r.trials:,} | {r.passed:,} | {r.seen} | {r.seconds:.0f} |" for r in rows]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--folders", type=int, default=5000)
    parser.add_argument("--signals", type=int, default=20, help="in each of four phases")
    parser.add_argument("--quick", action="store_true", help="a tenth of everything")
    parser.add_argument("--only", choices=["kills", "signals", "disk", "cuts", "folders"], help="one part of it")
    options = parser.parse_args()
    share = 10 if options.quick else 1
    torch.set_num_threads(1)
    rows: list[Row] = []
    with workplace() as (text, home):
        pattern = make_pattern(text, home)  # and with it, all that a first training imports
        sections = {
            "kills": kills(options.kills // share, text, home),
            "signals": signals(options.signals // share, text, home),
            "disk": full_disk(text, home, every=10 if options.quick else 1),
            "cuts": cuts(text, home, each=1 if options.quick else 5),
            "folders": damaged(options.folders // share, pattern, home),
        }
        for name, section in sections.items():
            if options.only in (None, name):
                rows += section
    print(table(rows))
    failed = [row.fault for row in rows if row.passed < row.trials]
    if failed:
        say(f"FAILED: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
