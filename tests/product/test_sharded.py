"""A model divided between processes: resumes bit for bit, opens in any number of processes, survives kills."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from ranks import Ranks, free_port
from safetensors.torch import load_file
from sharded_runs import DIVIDED, FAMILIES, TASKS, VARIANTS
from test_parallel import FAULTY, distance, losses, two
from test_parallel import SETTINGS as ENDED
from tiny_run import ROOT, call, environment, options, resume, start, write_text

from statewise.training.checkpoint import flaw
from statewise.training.folder import newest_verified

HERE = Path(__file__).parent


def launched(world: int, *argv: str, restarts: int = 0, timeout: int = 600, **extra: str) -> str:
    """What a script prints in `world` processes, started by torchrun."""
    launcher = ["torch.distributed.run", "--nproc-per-node", str(world), "--master-port", str(free_port())]
    done = subprocess.run(
        [sys.executable, "-m", *launcher, "--max-restarts", str(restarts), *argv],
        env=environment(**extra),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def train(world: int, kind: str, text: Path, out: Path, settings: dict[str, Any], ranks: Ranks | None = None) -> None:
    argv = ("train", kind, "--data", str(text), "--out", str(out), "--quiet", *options(settings))
    if ranks is None:
        launched(world, "-m", "statewise", *argv)
    else:
        ranks.run(world, "-m", "statewise", *argv)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_text(tmp_path_factory.mktemp("text"))


# ------------------------------------------------------------------ equal to the last bit


def compare(world: int, shard: str, cases: list[str], text: Path, ranks: Ranks | None = None) -> None:
    words = (str(HERE / "sharded_runs.py"), shard, str(text.parent), *cases)
    said = launched(world, *words, timeout=1800) if ranks is None else ranks.run(world, *words)
    told = [json.loads(line) for line in said.splitlines()]
    assert [result["case"] for result in told] == cases
    assert {result["parts"] for result in told} == {world if shard == "always" else 1}
    assert [result for result in told if not result["equal"]] == []


def test_a_cut_run_goes_on_bit_for_bit(text: Path, ranks: Ranks) -> None:
    compare(2, "always", ["lstm average", "transformer muon", "gru background", "mamba2 bfloat16"], text, ranks)


@pytest.mark.slow
@pytest.mark.parametrize(("world", "shard"), [(2, "never"), (2, "always"), (4, "always")])
def test_every_family_and_task_goes_on_bit_for_bit(world: int, shard: str, text: Path) -> None:
    compare(world, shard, [*FAMILIES, *VARIANTS, *TASKS, *(DIVIDED if shard == "always" else ())], text)


def test_what_saves_memory_changes_no_number(text: Path, tmp_path: Path) -> None:
    """Layers computed again, updates on the host and writes in the background: with all three, the same bits."""
    spared = {"train.recompute": True, "train.offload": True, "train.save_in_background": True}
    settings = {"model.depth": 2, "model.heads": 2, "train.shard": "always", "train.optimizer": "muon"}
    for name, more in (("plain", {}), ("spared", spared)):
        train(2, "transformer", text, tmp_path / name, {**settings, **more})
    for name in (
        "metrics.jsonl",
        "model.safetensors",
        "checkpoints/step-00000024/optimizer-00002-of-00002.safetensors",
    ):
        assert (tmp_path / "spared" / name).read_bytes() == (tmp_path / "plain" / name).read_bytes()


# ------------------------------------------------------------------ any number of processes

SETTINGS: dict[str, Any] = {"train.steps": 50, "train.batch": 7, "train.log_every": 1, "train.save_every": 25}
SETTINGS |= {"train.evaluate_every": 25, "train.shard": "always", "train.keep": 9, "model.depth": 2}


def check_worlds(kind: str, worlds: list[int], text: Path, tmp_path: Path, settings: dict[str, Any]) -> None:
    """Each trains with rows that cannot be shared evenly; then each goes on from the checkpoint of the one before."""
    alone = start(kind, text, tmp_path / "1", settings).path
    last = "checkpoints/step-00000050/model.safetensors"
    runs = [alone]
    for world in worlds:
        out = tmp_path / str(world)
        train(world, kind, text, out, {**settings, "train.steps": 25, "train.schedule": "constant"})
        first = losses(out)
        assert len(first) == 25
        runs.append(out)
    for before, out in pairwise(runs):
        assert losses(out) == pytest.approx(losses(before)[:25], abs=1e-5)
    for number, out in enumerate(runs[1:]):
        world = worlds[(number + 1) % len(worlds)]
        argv = ("train", "--resume", "--out", str(out), "--quiet", "--set", "train.steps=50")
        launched(world, "-m", "statewise", *argv)
        assert losses(out) == pytest.approx(losses(alone), abs=1e-5)
        assert distance(out / last, alone / last) < 1e-4
        checkpoint, skipped = newest_verified(out)
        assert checkpoint is not None
        assert not skipped
        assert len(list(checkpoint.path.glob("optimizer*"))) == world
        assert call("evaluate", str(out)).code == 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["lstm", "transformer", "ttt_linear"])
def test_worlds_agree_and_open_each_others_checkpoints(kind: str, text: Path, tmp_path: Path) -> None:
    check_worlds(kind, [2, 3, 4], text, tmp_path, {**SETTINGS, "train.schedule": "constant"})


def test_three_with_seven_rows_are_as_good_as_one(text: Path, tmp_path: Path, ranks: Ranks) -> None:
    settings = {**SETTINGS, "train.steps": 8, "train.save_every": 8}
    train(3, "lstm", text, tmp_path / "three", settings, ranks)
    alone = start("lstm", text, tmp_path / "one", settings).path
    assert losses(tmp_path / "three") == pytest.approx(losses(alone), abs=1e-5)
    assert distance(tmp_path / "three/model.safetensors", alone / "model.safetensors") < 1e-5
    checkpoint = tmp_path / "three/checkpoints/step-00000008"
    assert {path.suffix for path in checkpoint.iterdir()} == {".safetensors", ".json", ".toml"}
    parts = [load_file(path) for path in sorted(checkpoint.glob("optimizer-0000*-of-00003.safetensors"))]
    (whole,) = (load_file(path) for path in alone.glob("checkpoints/step-00000008/optimizer.safetensors"))
    assert {name: sum(map(len, tensors)) for name, *tensors in _columns(parts) if tensors[0].dim()} == {
        name: len(value) for name, value in whole.items() if value.dim()
    }
    again = resume(tmp_path / "three", {"train.steps": 10})  # by one process
    assert again.resumed_from == 8
    (checkpoint / "optimizer-00002-of-00003.safetensors").write_bytes(b"")
    assert "optimizer-00002-of-00003.safetensors has 0 bytes" in str(flaw(checkpoint, needs=("optimizer.safetensors",)))


def _columns(parts: list[dict[str, Any]]) -> Iterator[tuple[Any, ...]]:
    for name in parts[0]:
        yield name, *(part[name] for part in parts)


# ------------------------------------------------------------------ signals, kills and damage


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "code", "kept"), [("signal", 143, 8), ("nan", 3, 6), ("evaluation", 1, None)])
def test_what_ends_one_ends_both(fault: str, code: int, kept: int | None, text: Path, tmp_path: Path) -> None:
    script, out = tmp_path / "faulty.py", tmp_path / "run"
    script.write_text(FAULTY)
    argv = ("train", "lstm", "--text", str(text), "--out", str(out), "--quiet")
    settings = {**ENDED, "train.shard": "always", "train.average": 0.9}
    ended = two(script, *argv, *options(settings), fault=fault)
    assert [code for code, _ in ended] == [code, code], ended
    checkpoint, skipped = newest_verified(out)
    assert checkpoint is not None
    assert not skipped
    assert kept is None or checkpoint.step == kept
    assert [code for code, _ in two(script, "train", "--resume", "--out", str(out), "--quiet")] == [0, 0]
    train(2, "lstm", text, tmp_path / "uncut", settings)
    for name in ("metrics.jsonl", "model.safetensors", "checkpoints/step-00000012/model.safetensors"):
        assert (out / name).read_bytes() == (tmp_path / "uncut" / name).read_bytes()


@pytest.mark.slow
def test_each_of_two_nodes_holds_the_model(text: Path, tmp_path: Path) -> None:
    """Two torchruns that meet on this machine, of two processes each."""
    (tmp_path / "text.txt").write_bytes((text).read_bytes())
    launcher = ["-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "2", "--rdzv-backend", "c10d"]
    meeting = ["--rdzv-id", "here", "--rdzv-endpoint", f"127.0.0.1:{free_port()}"]
    argv = [str(HERE / "sharded_runs.py"), "always", str(tmp_path), "lstm", "transformer muon"]
    nodes = [
        subprocess.Popen(
            [sys.executable, *launcher, *meeting, *argv], env=environment(), stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    told = [json.loads(line) for node in nodes for line in node.communicate(timeout=300)[0].splitlines()]
    assert [node.returncode for node in nodes] == [0, 0]
    assert {(result["case"], result["world"], result["parts"], result["equal"]) for result in told} == {
        ("lstm", 4, 2, True),
        ("transformer muon", 4, 2, True),
    }


@pytest.mark.slow
@pytest.mark.parametrize(("shard", "background"), [("never", False), ("always", False), ("always", True)])
def test_torchrun_restarts_a_run_that_lost_a_rank(shard: str, background: bool, text: Path, tmp_path: Path) -> None:
    kills = int(os.environ.get("STATEWISE_KILLS", "3"))
    settings = {
        "train.shard": shard,
        "train.average": 0.9,
        "train.log_every": 1,
        "train.save_in_background": background,
    }
    train(2, "lstm", text, tmp_path / "uncut", settings)
    out, killed = tmp_path / "killed", tmp_path / "killed.txt"
    argv = ("train", "lstm", "--data", str(text), "--out", str(out), "--quiet", *options(settings))
    script = str(HERE / "killed_rank.py")
    launched(2, script, *argv, restarts=kills + 1, timeout=3600, KILLS=str(kills), KILLED=str(killed))
    assert len(killed.read_text().splitlines()) == kills
    for name in ("metrics.jsonl", "model.safetensors", "checkpoints/step-00000024/model.safetensors"):
        assert (out / name).read_bytes() == (tmp_path / "uncut" / name).read_bytes()
    assert not list(out.rglob(".tmp-*"))


def test_a_run_that_may_be_restarted_is_given_a_folder(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_MAX_RESTARTS", "3")
    said = call("train", "lstm", "--data", str(text))
    assert said.code == 2
    assert "a run that torchrun may restart needs to know its folder" in said.err


@pytest.fixture
def folders(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return __import__("fault_folders")


@pytest.mark.slow
def test_damaged_folders_with_parts(folders: ModuleType, text: Path, tmp_path: Path) -> None:
    count = int(os.environ.get("STATEWISE_DAMAGES", "200"))
    settings = {"train.steps": 6, "train.keep": 3, "train.evaluate_every": 2, "train.save_every": 2}
    train(2, "lstm", text, tmp_path / "pattern", {**settings, "train.shard": "always", "train.average": 0.9})
    pattern = folders.pattern_of(tmp_path / "pattern")
    results = [folders.try_damaged(pattern, number, tmp_path) for number in range(count)]
    assert [problem for _, problem in results if problem is not None] == []
    endings = [ending for ending, _ in results]
    assert endings.count("refused") > 0.15 * count
    assert endings.count("fallen back") > 0.15 * count


def test_nothing_pickles() -> None:
    """Neither do checkpoints of one process nor those of several; PyTorch's own distributed checkpoints would."""
    banned = ("torch.save", "torch.load", "import pickle", "distributed.checkpoint", "all_gather_object")
    sources = [path for path in (ROOT / "statewise").rglob("*.py") if any(b in path.read_text() for b in banned)]
    assert sources == []
