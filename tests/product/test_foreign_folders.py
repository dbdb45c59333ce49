"""A folder from somebody else may hold links that lead out of it: nothing is written through them."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_run import Said, call, start, write_text
from tiny_study import write_study


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("home")
    return start("gru", write_text(home), home / "run", {"train.steps": 8}).path


def linked(pattern: Path, home: Path, name: str, *, exists: bool) -> tuple[Path, Path]:
    """A copy with a link in place of one of its files or folders, and what the link points to."""
    copy, target = home / "copy", home / "outside" / "target"
    shutil.copytree(pattern, copy)
    target.parent.mkdir()
    link = copy / name
    folder = link.is_dir()
    if folder:
        shutil.rmtree(link)
        target.mkdir()
    elif exists:
        target.write_text("mine\n")
    link.unlink(missing_ok=True)
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(target, target_is_directory=folder)
    return copy, target


def untouched(target: Path, *, exists: bool) -> bool:
    if target.is_dir():
        return not list(target.iterdir())
    return target.exists() == exists and (not exists or target.read_text() == "mine\n")


def resume(copy: Path) -> Said:
    return call("train", "--resume", "--out", str(copy), "--set", "train.steps=12", "--quiet")


def inspect(copy: Path) -> Said:
    return call("inspect", str(copy), "surprise", "--text", "the cat", "--quiet")


FILES: dict[str, Callable[[Path], Said]] = {
    "environment.json": resume,
    "metrics.jsonl": resume,
    "timing.jsonl": resume,
    ".tmp-metrics.jsonl": resume,
    ".lock": resume,
    "run.toml": resume,
    "manifest.json": resume,
    "model.safetensors": resume,
    ".tmp-model.safetensors": resume,
    "inspect/surprise/inspect.json": inspect,
    "inspect/surprise/inspect.json.partial": inspect,
}


@pytest.mark.parametrize("exists", [True, False])
@pytest.mark.parametrize("name", FILES)
def test_no_file_is_written_through_a_link(name: str, exists: bool, run: Path, tmp_path: Path) -> None:
    copy, target = linked(run, tmp_path, name, exists=exists)
    said = FILES[name](copy)
    assert untouched(target, exists=exists)
    assert said.code in (0, 2), said.err


@pytest.mark.parametrize(("name", "verb"), [("checkpoints", resume), ("inspect", inspect)])
def test_no_folder_is_entered_through_a_link(
    name: str, verb: Callable[[Path], Said], run: Path, tmp_path: Path
) -> None:
    (run / "inspect").mkdir(exist_ok=True)
    copy, target = linked(run, tmp_path, name, exists=True)
    shutil.copytree(run / "checkpoints", target, dirs_exist_ok=True)
    (target / ".tmp-mine").mkdir()
    before = sorted(target.rglob("*"))
    said = verb(copy)
    assert said.code == 2
    assert f"{name}' is a link, expected a folder" in said.err
    assert sorted(target.rglob("*")) == before


@pytest.mark.usefixtures("warm_workers")
@pytest.mark.parametrize(
    "name", [".lock", pytest.param("study.toml", marks=pytest.mark.slow), "log.jsonl", "workers.log", "trials"]
)
def test_no_study_writes_through_a_link(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_study(tmp_path)
    monkeypatch.chdir(tmp_path)
    study, outside = tmp_path / "study", tmp_path / "outside"
    study.mkdir()
    outside.mkdir()
    target = outside if name == "trials" else outside / "target"
    (study / name).symlink_to(target)
    said = call("compare", "tiny.toml", "--out", "study", "--workers", "1", "--quiet")
    assert not list(outside.iterdir())
    assert said.code in (0, 2), said.err
    if name != "study.toml":
        assert "is not a plain file" in said.err or "is a link, expected a folder" in said.err
