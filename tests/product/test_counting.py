"""A model that counts, through every verb: the same folder, the same commands, and no loop behind them."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from command import TEXT, call
from safetensors.torch import load_file, save_file

import statewise
from statewise.training.checkpoint import MANIFEST, sha256


@pytest.fixture
def counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with `text.txt` and `run`, counted from it."""
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text(TEXT)
    said = call("train", "markov", "--text", "text.txt", "--set", "model.order=4", "--out", "run", "--json", "--quiet")
    assert said.code == 0, said.err
    result = json.loads(said.out)
    assert result["step"] == result["best_step"] == 1
    assert result["resumed_from"] is None
    return tmp_path / "run"


def test_the_folder_is_like_any_other(counted: Path) -> None:
    names = {path.name for path in counted.iterdir()}
    assert names >= {
        *("run.toml", "model.safetensors", "tokenizer.json", "unigram.safetensors", "manifest.json"),
        *("metrics.jsonl", "timing.jsonl", "environment.json"),
    }
    (record,) = [json.loads(line) for line in (counted / "metrics.jsonl").read_text().splitlines()]
    assert record.keys() == {
        *("step", "tokens", "validation_nats", "validation_perplexity", "validation_bits_per_byte"),
    }
    said = call("evaluate", "run", "--json")
    found = json.loads(said.out)
    assert found["nats_per_token"] == pytest.approx(record["validation_nats"], rel=1e-6)
    assert found["perplexity"] < 1.5 < found["unigram_perplexity"]


def test_it_writes_goes_on_and_keeps_its_laws(counted: Path) -> None:
    said = call("generate", "run", "--prompt", "the cat sat", "--tokens", "8", "--temperature", "0")
    assert said.out.strip().endswith("on the")
    first = call("generate", "run", "--tokens", "6", "--seed", "3", "--save-state", "s.safetensors").out
    more = call("generate", "run", "--state", "s.safetensors", "--tokens", "6", "--seed", "3").out
    whole = call("generate", "run", "--tokens", "12", "--seed", "3").out
    assert whole.strip("\n") == first.strip("\n") + more.strip("\n")
    said = call("verify", "run")
    assert said.code == 0
    assert "19 of 19" in said.out


def test_row_b7_the_text_of_a_run_can_be_tested_for_change(counted: Path) -> None:
    Path("same.txt").write_text("the cat sat on the mat and the dog ran . " * 200)
    Path("changed.txt").write_text("the cat sat on the mat . " * 150 + "a dog ran and ran and ran . " * 150)
    for name, stationary in (("same", True), ("changed", False)):
        found = json.loads(call("evaluate", "run", "--data", f"{name}.txt", "--stationarity", "--json").out)
        assert (min(found[test]["p"] for test in ("tokens", "pairs", "transitions")) > 0.05) == stationary, found
    said = call("evaluate", "run", "--data", "changed.txt", "--stationarity")
    assert "not stationary: tokens" in " ".join(said.out.split())
    assert "leave the other options out" in call("evaluate", "run", "--stationarity", "--folds", "2").err


def test_there_is_nothing_to_resume(counted: Path) -> None:
    said = call("train", "--resume", "--out", "run")
    assert said.code != 0
    assert "counted in one go" in said.err


def test_counting_is_proved_by_counting_again(counted: Path) -> None:
    said = call("train", "markov", "--text", "text.txt", "--deterministic", "--out", "again", "--json")
    assert json.loads(said.out)["deterministic"] is True
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("setting", ["data.direction=reverse", "data.tokenizer=word", "data.tokenizer=bpe"])
def test_any_tokens_in_either_direction(counted: Path, setting: str) -> None:
    said = call("train", "markov", "--text", "text.txt", "--set", setting, "--out", "other", "--quiet")
    assert said.code == 0, said.err
    run = statewise.load("other")
    assert run.evaluate().perplexity < 2
    assert run.generate("the cat", tokens=5)
    assert "order 7" in repr(run)


@pytest.mark.parametrize("text", ["abcab", "the cat sat on the mat"])
def test_a_text_shorter_than_a_batch_is_counted(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch is how gradients are taken; there are none."""
    monkeypatch.chdir(tmp_path)
    Path("short.txt").write_text(text)
    said = call("train", "markov", "--text", "short.txt", "--set", "train.batch=1000", "--out", "short", "--json")
    assert said.code == 0, said.err
    assert statewise.load("short").generate("", tokens=5)
    assert call("evaluate", "short").code == 0
    refused = call("train", "gru", "--text", "short.txt", "--set", "train.batch=1000", "--out", "gradient")
    assert "batch 1000 is larger than the training text" in refused.err


def forge(folder: Path, **changed: torch.Tensor) -> None:
    """Change what was counted, and the manifest so that it vouches for the change."""
    path = folder / "model.safetensors"
    save_file({**load_file(path), **changed}, path)
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest["files"]["model.safetensors"] = {"bytes": path.stat().st_size, "sha256": sha256(path)}
    (folder / MANIFEST).write_text(json.dumps(manifest))


def test_a_forged_file_is_refused_and_not_believed(counted: Path) -> None:
    parts = load_file(counted / "model.safetensors")
    for name, value in (("symbol_G", 10**6), ("start_C", 2**40), ("key_C", 2**60), ("count_G", -1)):
        shutil.copytree(counted, "forged", dirs_exist_ok=True)
        bad = parts[name].clone()
        bad[len(bad) // 2] = value
        forge(Path("forged"), **{name: bad})
        with pytest.raises(statewise.UserError, match="the counts"):
            statewise.load("forged")
    forge(Path("forged"), extra=torch.zeros(1))
    with pytest.raises(statewise.UserError, match="the counts"):
        statewise.load("forged")
