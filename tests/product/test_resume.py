"""A run that was cut and resumed is the run that was not: the same numbers, the same bytes."""

import io
import random
import shutil
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from covering import covered
from tiny_run import BASE, FAMILIES, Cut, Heard, at, call, crash, evidence, resume, sha256, start, write_text

from statewise.models import LINEAGE
from statewise.specs import UserError
from statewise.tasks import LanguageModelJob, Trained, load, train
from statewise.training import Stopped
from statewise.training.folder import RunFolder, newest_verified


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_text(tmp_path_factory.mktemp("text"))


@pytest.fixture(scope="module")
def uncut(text: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("uncut")
    return {kind: evidence(start(kind, text, folder / kind, settings)) for kind, settings in FAMILIES.items()}


def term() -> None:
    signal.raise_signal(signal.SIGTERM)


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.slow] if kind != "lstm" else []) for kind in FAMILIES]
)
def test_five_random_cuts_change_nothing(
    kind: str, text: Path, uncut: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    for number, cut in enumerate(random.Random(kind).sample(range(5, BASE["train.steps"]), 5)):
        out = tmp_path / str(cut)
        # Every other cut is a crash, which loses the steps since the last save; the others are signals.
        action, ends = (crash, Cut) if number % 2 else (term, Stopped)
        with pytest.raises(ends):
            start(kind, text, out, FAMILIES[kind], on_step=at(cut, action))
        trained = resume(out)
        assert trained.resumed_from is not None
        assert trained.resumed_from == cut if ends is Stopped else cut - 4 <= trained.resumed_from < cut
        assert evidence(trained) == uncut[kind]


@pytest.mark.parametrize(
    "kind",
    [row.spec.kind for row in LINEAGE if row.spec.kind not in FAMILIES and "width" in type(row.spec).model_fields],
)
def test_whatever_is_listed_resumes_exactly(kind: str, text: Path, tmp_path: Path) -> None:
    """Carried state, whatever it is: also one that is a view, or that grows."""
    short = {"train.steps": 12, "train.log_every": 1}
    whole = evidence(start(kind, text, tmp_path / "whole", short))
    with pytest.raises(Cut):
        start(kind, text, tmp_path / "cut", short, on_step=at(7, crash))
    trained = resume(tmp_path / "cut")
    assert trained.resumed_from == 6
    assert evidence(trained) == whole


def test_the_families_exercise_what_they_are_meant_to(text: Path, tmp_path: Path) -> None:
    """Averaging and a fall of the rate happen inside the run of the gru, clipping in that of the elman."""
    heard = Heard()
    trained = start("gru", text, tmp_path / "gru", FAMILIES["gru"], display=heard)
    assert any("averaging starts" in line for line in heard.lines)
    checkpoint, _ = newest_verified(trained.path)
    assert checkpoint is not None
    assert 0 < checkpoint.progress["averaged"] < BASE["train.steps"]
    assert checkpoint.progress["best_step"] > BASE["train.steps"] - checkpoint.progress["averaged"]
    assert checkpoint.progress["plateau"][-1] < 1
    elman = start("elman", text, tmp_path / "elman", FAMILIES["elman"])
    assert '"clipped": 3' in (elman.path / "metrics.jsonl").read_text()


def test_many_cuts_in_one_run_change_nothing(text: Path, uncut: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    out = tmp_path / "run"
    with pytest.raises(Stopped):
        start("lstm", text, out, FAMILIES["lstm"], on_step=at(1, term))
    for cut in (2, 5, 6, 11, 12, 13, 23):
        with pytest.raises(Stopped):
            resume(out, on_step=at(cut, term))
    assert evidence(resume(out)) == uncut["lstm"]


def interrupt_evaluation(patch: pytest.MonkeyPatch, number: int) -> None:
    """A signal comes while the `number`-th evaluation from now is running."""
    honest, count = LanguageModelJob.evaluate, iter(range(1, 99))

    def evaluate(self: LanguageModelJob, model: Any, poll: Any) -> dict[str, float]:
        if next(count) == number:
            term()
        return honest(self, model, poll)

    patch.setattr(LanguageModelJob, "evaluate", evaluate)


@covered("kind, number", list(FAMILIES), [1, 2, 4], strength=1)
def test_a_signal_during_evaluation(
    kind: str, number: int, text: Path, uncut: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    """And again during the evaluation that the resume makes up for; and a crash right after that one."""
    out = tmp_path / "run"
    expected = number * {**BASE, **FAMILIES[kind]}["train.evaluate_every"]
    with pytest.MonkeyPatch.context() as patch:
        interrupt_evaluation(patch, number)
        with pytest.raises(Stopped) as caught:
            start(kind, text, out, FAMILIES[kind])
    assert caught.value.step == expected
    with pytest.MonkeyPatch.context() as patch:
        interrupt_evaluation(patch, 1)
        with pytest.raises(Stopped) as caught:
            resume(out)
    assert caught.value.step == expected  # no step was made in between
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunFolder, "save", lambda *_, **__: crash())
        with pytest.raises(Cut):
            resume(out)
    assert evidence(resume(out)) == uncut[kind]


def test_a_crash_between_saving_the_best_and_publishing_it(
    text: Path, uncut: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    out = tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunFolder, "publish", lambda *_: crash())
        with pytest.raises(Cut):
            start("lstm", text, out, FAMILIES["lstm"])
    assert not (out / "model.safetensors").exists()
    with pytest.raises(Cut):
        resume(out, on_step=at(7, crash))
    assert (out / "model.safetensors").exists()
    assert evidence(resume(out)) == uncut["lstm"]


CONSTANT = {"train.schedule": "constant", "train.log_every": 4}


def test_more_steps_than_were_asked_for_at_first(text: Path, tmp_path: Path) -> None:
    long = evidence(start("gru", text, tmp_path / "long", CONSTANT))
    start("gru", text, tmp_path / "short", {**CONSTANT, "train.steps": 12})
    assert evidence(resume(tmp_path / "short", {"train.steps": 24})) == long


@pytest.mark.parametrize(
    "change",
    [
        {"model.width": 9},
        {"model.dropout": 0.1},
        {"data.order": "random"},
        {"data.held_out": 0.2},
        {"seed": 1},
        {"train.batch": 8},
        {"train.window": 16},
        {"train.truncation": 4},
        {"train.optimizer": "sgd"},
    ],
    ids=str,
)
def test_what_makes_a_run_cannot_be_changed(change: dict[str, Any], finished: Trained) -> None:
    with pytest.raises(UserError, match="a resumed run keeps its task, seed, data, model, batch"):
        resume(finished.path, change)


@pytest.fixture(scope="module")
def finished(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folder = tmp_path_factory.mktemp("finished")
    return start("lstm", text, folder / "runs/lstm")


def test_a_finished_run_has_nothing_left_to_do(finished: Trained) -> None:
    before, heard = evidence(finished), Heard()
    checkpoints = {path: sha256(path) for path in finished.path.glob("checkpoints/*/*")}
    trained = resume(finished.path, display=heard)
    assert trained.resumed_from == 24
    assert "all 24 steps are done; to continue, raise train.steps" in heard.lines
    assert evidence(trained) == before
    assert {path: sha256(path) for path in finished.path.glob("checkpoints/*/*")} == checkpoints


def test_no_path_is_needed(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "there is nothing to resume under runs/" in call("train", "--resume").err
    for kind in ("gru", "elman"):  # the elman is the newer one
        with pytest.raises(Cut):
            start(kind, text, tmp_path / "runs" / kind, on_step=at(9, crash))
    said = call("train", "--resume", "--json")
    assert said.code == 0
    assert '"run": "runs/elman"' in said.out
    assert '"resumed_from": 8' in said.out
    assert "resumed from step 8 of runs/elman" in said.err


def test_naming_the_same_text_from_its_own_folder_is_no_change(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Cut):
        start("gru", text, tmp_path / "run", on_step=at(9, crash))
    monkeypatch.chdir(text.parent)
    assert resume(tmp_path / "run", data="text.txt").outcome.step == 24


def test_another_text_under_the_same_name_is_refused(text: Path, tmp_path: Path) -> None:
    copy = tmp_path / "text.txt"
    copy.write_text(text.read_text())
    with pytest.raises(Cut):
        start("gru", copy, tmp_path / "run", on_step=at(9, crash))
    copy.write_text(text.read_text().replace("cat", "dog"))
    with pytest.raises(UserError, match="is not the text that this run began with"):
        resume(tmp_path / "run", {"train.steps": 12})


def test_a_damaged_checkpoint_is_skipped_and_named(
    text: Path, uncut: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    out, heard = tmp_path / "run", Heard()
    with pytest.raises(Cut):
        start("lstm", text, out, FAMILIES["lstm"], on_step=at(14, crash))
    newest = out / "checkpoints/step-00000012"
    content = bytearray((newest / "optimizer.safetensors").read_bytes())
    content[-1] ^= 1
    (newest / "optimizer.safetensors").write_bytes(content)
    trained = resume(out, display=heard)
    assert trained.resumed_from == 8
    expected = "skipped a damaged checkpoint, step-00000012: optimizer.safetensors was changed after it was written"
    assert expected in heard.lines
    assert evidence(trained) == uncut["lstm"]


def test_nothing_whole_to_resume_from(text: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    with pytest.raises(Cut):
        start("gru", text, out, on_step=at(9, crash))
    for manifest in out.glob("checkpoints/*/manifest.json"):
        manifest.unlink()
    with pytest.raises(UserError, match="has no checkpoint that can be trusted"):
        resume(out)


def test_an_early_stop_is_remembered(text: Path, tmp_path: Path) -> None:
    trained = start("gru", text, tmp_path / "run", {"train.patience": 1, "train.lr": 1e-30})  # never better
    assert trained.outcome.step == 12
    again = resume(tmp_path / "run")
    assert again.resumed_from == trained.outcome.step
    assert evidence(again) == evidence(trained)


def test_a_kill_between_the_spec_and_the_weights_at_the_top(text: Path, tmp_path: Path) -> None:
    """What is published is a copy: without it, the checkpoint is enough to go on."""
    with pytest.raises(Cut):
        start("gru", text, tmp_path / "run", on_step=at(13, crash))
    (tmp_path / "run" / "model.safetensors").unlink()
    (tmp_path / "run" / "manifest.json").unlink(missing_ok=True)
    assert (tmp_path / "run" / "run.toml").is_file()
    assert resume(tmp_path / "run").outcome.step == 24


@pytest.mark.parametrize("part", ["text", "validation"])
def test_what_came_through_standard_input(
    part: str, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is kept in the folder: to resume, to evaluate, and after the folder was moved."""
    monkeypatch.chdir(tmp_path)
    named = {"text": ["-"]} if part == "text" else {"text": [str(text)], "validation": ["-"]}
    settings = {**BASE, **FAMILIES["lstm"], **{f"data.{name}": files for name, files in named.items()}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.read_bytes())))
        with pytest.raises(Cut):
            train("lstm", settings=settings, out="runs/piped", on_step=at(9, crash), display=Heard())
    trained = resume(Path("runs/piped"), {"train.steps": 16})
    assert trained.resumed_from == 8
    shutil.move("runs/piped", "moved")
    again = resume(Path("moved"))
    assert again.outcome.step == 16
    assert again.load().evaluate().tokens > 0


# ------------------------------------------------------------------ elsewhere


def cut_in_a_project(home: Path, text: Path) -> Path:
    """A run that was cut, in a folder that also holds its text."""
    (home / "data").mkdir(parents=True)
    shutil.copy(text, home / "data/cats.txt")
    with pytest.raises(Cut):
        start("lstm", home / "data/cats.txt", home / "runs/lstm", FAMILIES["lstm"], on_step=at(9, crash))
    return home / "runs/lstm"


def test_a_project_that_was_moved_goes_on(text: Path, uncut: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    cut_in_a_project(tmp_path / "old", text)
    shutil.move(tmp_path / "old", tmp_path / "new")
    trained = resume(tmp_path / "new/runs/lstm")
    assert trained.resumed_from == 8
    assert evidence(trained) == uncut["lstm"]
    shutil.move(tmp_path / "new", tmp_path / "newer")
    assert load(tmp_path / "newer/runs/lstm").evaluate() is not None


def test_the_same_text_may_be_named_elsewhere(text: Path, uncut: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    run = cut_in_a_project(tmp_path / "old", text)
    (tmp_path / "old/data/cats.txt").rename(tmp_path / "kept.txt")
    with pytest.raises(UserError, match="does not exist"):
        resume(run)
    other = tmp_path / "other.txt"
    words = text.read_text().split()
    other.write_text(" ".join(words[::-1]) + " " * (len(text.read_text()) - len(" ".join(words))))
    with pytest.raises(UserError, match=r"is not that which .* began with \(sha256|is not the text that this run"):
        resume(run, data=other)
    trained = resume(run, data=tmp_path / "kept.txt")
    assert (trained.resumed_from, evidence(trained)) == (8, uncut["lstm"])


def test_rows_may_be_named_elsewhere(tmp_path: Path) -> None:
    rows = "text\tlabel\n" + "".join(f"warm film {n}\tgood\ndull film {n}\tbad\n" for n in range(30))
    (tmp_path / "rows.tsv").write_text(rows)
    short = {"train.steps": 4, "train.batch": 4, "train.evaluate_every": 4, "train.save_every": 2}
    train("classification", data=tmp_path / "rows.tsv", settings=short, out=tmp_path / "run", display=Heard())
    (tmp_path / "rows.tsv").rename(tmp_path / "moved.tsv")
    (tmp_path / "changed.tsv").write_text(rows.replace("film 7", "movie 7"))
    more = {"train.steps": 6}
    with pytest.raises(UserError, match="not the data that this run began with"):
        resume(tmp_path / "run", more, data=tmp_path / "changed.tsv")
    assert resume(tmp_path / "run", more, data=tmp_path / "moved.tsv").outcome.step == 6


def test_another_number_of_threads_is_said_and_refused_where_bits_are_promised(text: Path, tmp_path: Path) -> None:
    start("gru", text, tmp_path / "run", {"train.steps": 6})
    heard, before = Heard(), torch.get_num_threads()
    torch.set_num_threads(before + 1)
    try:
        with pytest.raises(UserError, match=f"trained on {before} threads, and here are {before + 1}"):
            resume(tmp_path / "run", {"train.steps": 8, "train.deterministic": True})
        resume(tmp_path / "run", {"train.steps": 8}, display=heard)
    finally:
        torch.set_num_threads(before)
    expected = f"trained on {before} threads, now on {before + 1}: weights differ by rounding"
    assert any(line.startswith(expected) for line in heard.lines)


def test_trainings_in_threads_do_not_share_their_chance(
    text: Path, uncut: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    """And whoever draws from the same generator beside them is not disturbed."""
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    trained: dict[int, dict[str, Any]] = {}

    def work(number: int) -> None:
        trained[number] = evidence(start("lstm", text, tmp_path / str(number), FAMILIES["lstm"]))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert trained == dict.fromkeys(range(3), uncut["lstm"])
    assert torch.equal(torch.rand(3), expected)
