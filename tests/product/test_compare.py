"""`statewise compare`: every trial once, whatever happens, and a report of whatever there is."""

import contextlib
import json
import os
import shutil
import signal
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from command import Said, call
from tiny_study import driver, events, results, saved, sessions, trial_pids, wait_until, wait_until_gone, write_study

from statewise.cli.compare import fitting
from statewise.comparison import pool
from statewise.comparison.engine import Work, run
from statewise.comparison.plan import plan
from statewise.comparison.progress import Board
from statewise.comparison.study import load_study, parse_study, study_names
from statewise.comparison.trial import Trial
from statewise.disk import locked
from statewise.specs import UserError


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compare")
    write_study(folder)
    return folder


@pytest.fixture(scope="module")
def said(folder: Path, warm_command: tuple[str, ...]) -> Said:
    """A study, run once."""
    with contextlib.chdir(folder), pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "COMMAND", warm_command)
        return call("compare", "tiny.toml", "--workers", "2")


@pytest.fixture(scope="module")
def longer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study whose trials take long enough to be cut, and what an uncut one finds, in `uncut`."""
    folder = tmp_path_factory.mktemp("longer")
    write_study(folder, steps=300, every=20, seeds=1)
    with contextlib.chdir(folder):
        assert call("compare", "tiny.toml", "--workers", "1", "--out", "uncut", "--quiet").code == 0
    return folder


def test_a_study_leaves_results_and_a_report(folder: Path, said: Said) -> None:
    assert said.code == 0, said.err
    study = folder / "studies/tiny"
    found = results(study)
    assert sorted((one["entry"], one["seed"]) for one in found.values()) == [
        *[("gru", 0), ("gru", 1)],
        *[("lstm", 0), ("lstm", 1)],
    ]
    for one in found.values():
        assert [point["step"] for point in one["curve"]] == [3, 6]
        assert one["tokens"] == 6 * 4 * 16
        assert abs(one["parameters"] / 3000 - 1) < 0.2
        assert "".join(piece for piece, _ in one["surprise"]) in (folder / "text.txt").read_text()
        assert one["sample"]
    assert len({one["weights_sha256"] for one in found.values()}) == 4
    for name in ("report.html", "report.md", "report.json"):
        assert (study / name).stat().st_size > 100
    assert events(study) == {(event, key): 1 for key in found for event in ("start", "end")}
    assert "lstm" in said.out
    assert "report.html" in said.out


def test_nothing_but_text_where_there_is_no_terminal(said: Said) -> None:
    assert not [character for character in said.out + said.err if ord(character) < 32 and character != "\n"]


def test_a_table_has_as_many_columns_as_fit() -> None:
    widths = {"entry": 10, "metric": 12, "group": 5}  # three characters between two, and one at the edge
    assert fitting(widths, 80) == ["entry", "metric", "group"]
    assert fitting(widths, 35) == ["entry", "metric", "group"]
    assert fitting(widths, 34) == ["entry", "metric"]
    assert fitting(widths, 5) == ["entry"]


def test_where_there_is_no_terminal_every_column_is_whole(said: Said) -> None:
    for heading in ("bits per byte", "parameters", "after 1,024 tokens", "decoding"):
        assert heading in said.out
    assert "…" not in said.out


def test_the_study_that_was_run_is_kept(folder: Path, said: Said) -> None:
    kept = parse_study(tomllib.loads((folder / "studies/tiny/study.toml").read_text()))
    with contextlib.chdir(folder):
        assert kept == plan(load_study("tiny.toml")).study


def test_a_second_time_nothing_is_done_again(folder: Path, said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    before = {path: path.stat().st_mtime_ns for path in Path("studies/tiny/trials").rglob("*")}
    again = call("compare", "tiny.toml", "--workers", "2")
    assert again.code == 0
    assert again.out == said.out
    assert {path: path.stat().st_mtime_ns for path in Path("studies/tiny/trials").rglob("*")} == before
    assert set(events(Path("studies/tiny")).values()) == {1}


@pytest.mark.slow
def test_another_folder_gets_the_same_figures(folder: Path, said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    """By one worker in place of two. And `--json` is JSON."""
    monkeypatch.chdir(folder)
    again = call("compare", "tiny.toml", "--workers", "1", "--out", "other", "--json")
    assert again.code == 0, again.err
    report = json.loads(again.out)
    assert report["left"] == report["failed"] == 0
    assert {row["entry"]["value"] for row in report["parts"][0]["table"]["rows"]} == {"lstm", "gru"}
    assert again.err == ""
    assert results(Path("other")) == results(Path("studies/tiny"))


@pytest.mark.slow
def test_one_more_entry_runs_alone_and_some_can_be_left_out(
    folder: Path, said: Said, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a copy of the whole folder: where the data lie does not matter."""
    copied = tmp_path / "moved"
    shutil.copytree(folder, copied)
    monkeypatch.chdir(copied)
    more = call("compare", "tiny.toml", "--workers", "2", "--add", "small=gru model.embedding=4", "--quiet", "--json")
    assert more.code == 0, more.err
    assert {row["entry"]["value"] for row in json.loads(more.out)["parts"][0]["table"]["rows"]} == {
        "lstm",
        "gru",
        "small",
    }
    begun = {key for event, key in events(Path("studies/tiny")) if event == "start"}
    assert len(begun) == 4 + 2
    assert set(events(Path("studies/tiny")).values()) == {1}
    less = call("compare", "tiny.toml", "--only", "gru", "--quiet", "--json")
    assert less.code == 0, less.err
    assert {row["entry"]["value"] for row in json.loads(less.out)["parts"][0]["table"]["rows"]} == {"gru"}
    assert set(events(Path("studies/tiny")).values()) == {1}


def test_studies_are_listed() -> None:
    said = call("compare", "--list")
    assert said.code == 0
    assert [line.split()[0] for line in said.out.splitlines()] == study_names()
    assert json.loads(call("compare", "--list", "--json").out).keys() == set(study_names())


def test_a_trial_that_fails_is_said_and_the_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By day, only here is a worker what users have: a process of its own that imports everything."""
    more = '[[entry]]\nname = "absurd"\nsettings.model.kind = "elman"\nsettings.train.lr = 1e30\n'
    write_study(tmp_path, more=more + "settings.train.clip = 1e30\n")
    monkeypatch.chdir(tmp_path)
    said = call("compare", "tiny.toml", "--workers", "1", "--seeds", "1")
    assert said.code == 1
    assert "absurd, seed 0, failed:" in said.err
    assert "not finite" in said.out
    study = Path("studies/tiny")
    assert sorted(one["entry"] for one in results(study).values()) == ["gru", "lstm"]
    again = call("compare", "tiny.toml", "--workers", "1", "--seeds", "1")
    assert again.code == 1  # it would fail again, so it is not tried again
    assert sum(count for (event, _), count in events(study).items() if event == "start") == 3


@pytest.mark.slow
def test_an_interrupt_leaves_a_report_of_what_there_is(longer: Path) -> None:
    out = longer / "interrupted"
    process = driver(longer, longer / "tiny.toml", out)
    wait_until(lambda: bool(saved(out)), process)
    process.send_signal(signal.SIGINT)
    said, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "the same command continues" in err
    wait_until_gone(trial_pids(out))
    assert len(results(out)) < 2
    report = json.loads((out / "report.json").read_text())
    assert report["missing"]
    assert "</html>" in (out / "report.html").read_text()
    assert "not done" in said
    with contextlib.chdir(longer):
        assert call("compare", "tiny.toml", "--out", "interrupted", "--workers", "1").code == 0
    assert results(out) == results(longer / "uncut")
    assert sessions(out) > 2  # somebody went on with what was begun
    lines = [json.loads(line) for path in out.glob("trials/*/sessions.jsonl") for line in path.read_text().splitlines()]
    assert max(line["step"] for line in lines if "pid" in line) > 0  # and not from the beginning


@pytest.mark.slow
def test_a_driver_that_is_killed_loses_nothing_and_repeats_nothing(longer: Path) -> None:
    """First in the middle of a training, then as soon as a trial has ended."""
    out = longer / "killed"

    def begun() -> bool:
        return bool(saved(out))

    def ended() -> bool:
        return bool(results(out))

    for moment in (begun, ended):
        process = driver(longer, longer / "tiny.toml", out)
        wait_until(moment, process)
        process.kill()
        process.communicate()
        before = {path: path.stat().st_mtime_ns for path in out.glob("trials/*/result.json")}
    with contextlib.chdir(longer):
        assert call("compare", "tiny.toml", "--out", "killed", "--workers", "1").code == 0
    wait_until_gone(trial_pids(out))
    assert results(out) == results(longer / "uncut")
    assert before.items() <= {path: path.stat().st_mtime_ns for path in out.glob("trials/*/result.json")}.items()
    assert {key: count for key, count in events(out).items() if key[0] == "end"} == {
        ("end", key): 1 for key in results(out)
    }


@pytest.mark.slow
def test_equal_seconds_beside_equal_sizes_through_a_kill(tmp_path: Path) -> None:
    """What was used up before counts, and what was lost does not.

    A run ends with the step in which its time runs out. On a machine that does other things that step may be kept
    waiting for longer than it takes, so the time is looked at again where it is too long.
    """
    for attempt in range(3):
        (tmp_path / str(attempt)).mkdir()
        rows = timed_through_a_kill(tmp_path / str(attempt))
        if all(abs(row["off_seconds"]["value"]) < 0.02 and 8 <= row["curve"] <= 10 for row in rows):
            return
    raise AssertionError([(row["off_seconds"], row["curve"]) for row in rows])


def timed_through_a_kill(tmp_path: Path) -> list[dict[str, Any]]:
    write_study(tmp_path, steps=100, every=10)
    out = tmp_path / "out"
    timed = ["--set", "budget.also.kind=seconds", "--set", "budget.also.amount=2", "--set", "seeds=1", "--quiet"]
    process = driver(tmp_path, tmp_path / "tiny.toml", out, *timed)
    wait_until(lambda: bool(saved(out)), process)
    process.kill()
    process.communicate()
    wait_until_gone(trial_pids(out))
    with contextlib.chdir(tmp_path):
        said = call("compare", "tiny.toml", "--workers", "1", "--out", "out", *timed, "--json")
    assert said.code == 0, said.err
    assert sessions(out) > 2
    rows: list[dict[str, Any]] = json.loads(said.out)["parts"][0]["table"]["rows"]
    for row in rows:
        assert abs(row["off_parameters"]["value"]) < 0.2
        assert row["steps"]["value"] > 10
    # An evaluation each tenth of the time, of however many steps.
    return [row | {"curve": len(one["curve"])} for row, one in zip(rows, results(out).values(), strict=True)]


class Killing(Board):
    """Kills the process of the first trial once, that of the second as often as it is begun."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.left: dict[str, int] = {}

    def moved(self, trial: Trial, words: Mapping[str, Any]) -> None:
        self.left.setdefault(trial.key, {0: 1, 1: 9}.get(len(self.left), 0))
        if self.left[trial.key] and "tokens_per_second" in words:
            self.left[trial.key] -= 1
            lines = (self.folder / "trials" / trial.key / "sessions.jsonl").read_text().splitlines()
            os.kill([json.loads(line)["pid"] for line in lines if "pid" in line][-1], signal.SIGKILL)


@pytest.mark.slow
def test_a_trial_whose_process_dies_is_begun_again_and_given_up_in_the_end(longer: Path) -> None:
    with contextlib.chdir(longer):
        made = plan(load_study("tiny.toml"))
        work = Work(made, Path("dying"))
        (ran,) = run([work], workers=1, display=Killing(Path("dying")))
        (failure,) = ran.failed
        assert "SIGKILL" in failure.error
        assert not failure.lasting
        assert len(ran.found) == 1
        (again,) = run([work], workers=1)
        assert not again.failed
        assert results(Path("dying")) == results(Path("uncut"))


def swapped(first: Path, second: Path, _: Path) -> None:
    kept = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(kept)


def changed(first: Path, second: Path, third: Path) -> None:
    first.write_text(first.read_text().replace('"bits_per_byte": ', '"bits_per_byte": 1', 1))
    second.write_text("[" * 100_000)
    third.write_text(third.read_text()[:-20])


@pytest.mark.usefixtures("warm_workers")
@pytest.mark.parametrize("harm", [swapped, pytest.param(changed, marks=pytest.mark.slow)])
def test_a_damaged_result_costs_its_own_trial_alone(harm: Any, folder: Path, said: Said) -> None:
    with contextlib.chdir(folder):
        study = Path("studies") / harm.__name__
        shutil.copytree("studies/tiny", study)
        first, second, third, _ = sorted(study.glob("trials/*/result.json"))
        before = {path: path.read_bytes() for path in study.glob("trials/*/result.json")}
        harm(first, second, third)
        harmed = {path.parent.name for path, content in before.items() if path.read_bytes() != content}
        with (study / "log.jsonl").open("a") as log:
            log.write('{"event": "end"}\n')
        again = call("compare", "tiny.toml", "--workers", "1", "--out", str(study))
    assert again.code == 0, again.err
    assert results(folder / study) == results(folder / "studies/tiny")
    assert len(harmed) == (2 if harm is swapped else 3)
    for key in harmed:
        assert f"{key}/result.json: it " in again.err
        assert "; the trial is run again" in again.err
    lines = [json.loads(line) for line in (folder / study / "log.jsonl").read_text().splitlines()]
    assert {line["key"] for line in lines[9:] if line["event"] == "start"} == harmed


def test_two_drivers_do_not_run_one_study(tmp_path: Path) -> None:
    with locked(tmp_path), pytest.raises(UserError, match="another process"), locked(tmp_path, patience=0):
        pass
    (tmp_path / ".lock").write_text('{"pid": 1, "host": "elsewhere", "since": "2026"}')  # as a killed one leaves it
    with locked(tmp_path, patience=0):
        assert str(os.getpid()) in (tmp_path / ".lock").read_text()
    assert not (tmp_path / ".lock").exists()


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["lineagee"], ["lineagee", "did you mean 'lineage'"]),
        (["missing.toml"], ["missing.toml", "does not exist"]),
        (["broken.toml"], ["broken.toml", "not valid TOML"]),
        (["tiny.toml", "--workers", "0"], ["--workers", "0"]),
        (["tiny.toml", "--seeds", "0"], ["--seeds", "0"]),
        (["tiny.toml", "--minutes", "0"], ["minutes", "0"]),
        (["tiny.toml", "--engine", "slurm"], ["--engine", "slurm", "ray"]),
        (["tiny.toml", "--set", "train.steps=5"], ["train.steps=5", "base.train.steps=5"]),
        (["tiny.toml", "--set", "base.train.stepps=5"], ["stepps", "did you mean 'steps'"]),
        (["tiny.toml", "--set", "metric=accuracy"], ["accuracy", "bits_per_byte"]),
        (["tiny.toml", "--set", "base.train.steps"], ["no '='"]),
        (["tiny.toml", "--data", "nowhere.txt"], ["nowhere.txt"]),
        (["tiny.toml", "--data", "-"], ["standard input"]),
        (["unknown.toml"], ["model.wdith", "unknown key"]),
    ],
)
def test_a_mistake_is_named_and_leaves_nothing_behind(
    argv: list[str], words: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    Path("broken.toml").write_text("title = ")
    Path("unknown.toml").write_text(Path("tiny.toml").read_text() + "settings.model.wdith = 3\n")
    said = call("compare", *argv, "--out", "mistake")
    assert said.code == 2
    for word in words:
        assert word in said.err
    assert said.out == ""
    assert not Path("mistake").exists()
