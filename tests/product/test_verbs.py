"""Every verb once, on a tiny run: what it prints, what it writes, and what machines may rely on."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from command import TEXT, TINY, call, environment, run

import statewise
from statewise.models import ENCODER_DECODERS, ENCODERS

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


def test_models_for_people(here: Path) -> None:
    said = call("models")
    assert said.code == 0
    for row in statewise.LINEAGE:
        assert row.name in said.out


def test_models_for_machines(here: Path) -> None:
    said = call("models", "--json")
    rows = json.loads(said.out)
    listed = [row.name for table in (statewise.LINEAGE, ENCODERS, ENCODER_DECODERS) for row in table]
    assert [row["name"] for row in rows] == listed
    for row in rows:
        assert row.keys() >= {"name", "id", "family", "year", "state", "parameters", "context_bytes"}
        assert (row["context_bytes"] > 0) == (row["family"] != "encoder")
        assert (row["parameters"] > 0) == (row["learns"] == "gradient")


def test_train_leaves_a_folder_that_says_what_it_is(world: Path) -> None:
    folder = world / "runs/lstm"
    names = {path.name for path in folder.iterdir()}
    assert names >= {
        *("run.toml", "model.safetensors", "tokenizer.json", "unigram.safetensors", "manifest.json"),
        *("metrics.jsonl", "timing.jsonl", "environment.json", "checkpoints"),
    }
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert {"step", "loss", "lr", "gradient_norm", "clipped", "tokens"} <= records[0].keys()
    assert [r["step"] for r in records if "validation_nats" in r] == [10, 20]


def test_train_for_machines_resumes_at_the_end(here: Path) -> None:
    said = call("train", "--resume", "--out", "runs/lstm", "--json", "--quiet")
    assert said.code == 0, said.err
    result = json.loads(said.out)
    assert result["run"] == "runs/lstm"
    assert result["step"] == result["resumed_from"] == 20
    assert result.keys() >= {
        *("best_step", "weights_sha256", "tokens_per_second", "deterministic"),
        *("validation_nats", "validation_perplexity", "validation_bits_per_byte"),
    }


def test_train_goes_on_for_longer_exactly_as_if_never_stopped(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = str(here / "text.txt")
    monkeypatch.chdir(tmp_path)
    constant = ("--set", "train.schedule=constant", "--quiet", "--json")
    whole = call("train", "gru", "--text", text, *TINY, *constant, "--out", "whole")
    call("train", "gru", "--text", text, *TINY, *constant, "--set", "train.steps=10", "--out", "runs/cut")
    rest = call("train", "--resume", "--set", "train.steps=20", "--quiet", "--json")
    assert json.loads(rest.out)["resumed_from"] == 10
    assert json.loads(rest.out)["weights_sha256"] == json.loads(whole.out)["weights_sha256"]
    assert (tmp_path / "whole/metrics.jsonl").read_text() == (tmp_path / "runs/cut/metrics.jsonl").read_text()


def test_train_reads_standard_input(tmp_path: Path) -> None:
    said = run("train", "elman", "--text", "-", *TINY, cwd=tmp_path, stdin=TEXT)
    assert said.code == 0, said.err
    assert (tmp_path / "runs/elman/stdin.txt").read_text() == TEXT
    assert "runs/elman" in said.out
    assert not CONTROL.search(said.out + said.err)
    again = call("evaluate", str(tmp_path / "runs/elman"), "--json")
    assert again.code == 0, again.err


def test_train_proves_that_it_is_deterministic(here: Path, tmp_path: Path) -> None:
    out = str(tmp_path / "run")
    said = call("train", "lstm", "--text", "text.txt", *TINY, "--deterministic", "--json", "--out", out)
    assert said.code == 0, said.err
    assert json.loads(said.out)["deterministic"] is True


def test_evaluate_for_people(here: Path) -> None:
    said = call("evaluate", "runs/lstm")
    assert said.code == 0
    for word in ("perplexity", "perfect", "lstm", "unigram", "uniform", "nats per token", "bits per byte"):
        assert word in said.out


def test_evaluate_for_machines(here: Path) -> None:
    said = call("evaluate", "runs/lstm", "--json")
    result = json.loads(said.out)
    assert result.keys() >= {
        *("nats_per_token", "perplexity", "bits_per_byte", "tokens", "bytes"),
        *("unigram_perplexity", "uniform_perplexity"),
    }
    assert 1 < result["perplexity"] < result["uniform_perplexity"]


def test_evaluate_reads_another_text(here: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.txt"
    other.write_text("the dog sat on the cat and the log. " * 20)
    result = json.loads(call("evaluate", "runs/lstm", "--text", str(other), "--json").out)
    assert result["bytes"] == other.stat().st_size
    other.write_text("Ωμέγα the cat ", encoding="utf-8")
    said = " ".join(call("evaluate", "runs/lstm", "--text", str(other)).out.split())
    assert "more than" in said, "an unknown character is not told from another"
    assert "of the tokens unknown; byte or bpe as data.tokenizer reads any text" in said


def test_verify_for_people(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    said = call("verify", "runs/lstm")
    assert said.code == 0
    assert "checks passed" in said.out
    for law in ("split", "step", "causal", "rows", "ragged", "pure", "fork", "precision"):
        assert law in said.out


def test_verify_names_every_variant(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    said = call("verify", "elman")
    assert "elman[activation=relu]" in said.out
    assert "elman[zoneout=0.2]" in said.out


def test_verify_for_machines(here: Path) -> None:
    findings = json.loads(call("verify", "runs/lstm", "--json").out)
    assert isinstance(findings, list)
    for finding in findings:
        assert finding.keys() == {"model", "law", "dtype", "error", "passed", "raised"}
        assert finding["passed"] is True
    assert {"float64", "float32", "bfloat16", "float16"} == {finding["dtype"] for finding in findings}


def test_verify_fails_when_a_law_is_broken(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(statewise.core.laws.EXACT, "causal", lambda machine, case: 0.5)
    said = call("verify", "runs/lstm")
    assert said.code == 1
    assert "5e-01!" in said.out
    assert "broken: causal" in said.out


def test_generate_repeats_itself_with_one_seed(here: Path) -> None:
    first, second, other = (call("generate", "runs/lstm", "-n", "50", "--seed", seed).out for seed in "445")
    assert first == second != other


def test_generate_goes_on_from_a_saved_state(here: Path, tmp_path: Path) -> None:
    state, ask = str(tmp_path / "half.state"), ("generate", "runs/lstm", "--temperature", "0.9", "--json")
    for seed in map(str, range(200)):  # the first whose text does not end before
        whole = json.loads(call(*ask, "-p", "the ", "-n", "40", "--seed", seed).out)
        if len(whole["text"]) == 40:
            break
    half = call(*ask, "-p", "the ", "-n", "25", "--seed", seed, "--save-state", state)
    rest = call(*ask, "-n", "15", "--seed", seed, "--state", state)
    assert len(whole["text"]) == 40
    assert json.loads(half.out)["text"] + json.loads(rest.out)["text"] == whole["text"]
    assert whole["prompt"] == "the "


def test_generate_stops_before_a_text(here: Path) -> None:
    options = ("-p", "the ", "-n", "60", "--temperature", "0", "--json")
    text = json.loads(call("generate", "runs/lstm", *options).out)["text"]
    stop = text[10:12]
    stopped = json.loads(call("generate", "runs/lstm", *options, "--stop", stop).out)["text"]
    assert stopped == text[: text.index(stop)]


@pytest.mark.slow
def test_not_a_terminal_gets_no_control_characters(world: Path) -> None:
    for argv in (("models",), ("evaluate", "runs/lstm"), ("generate", "runs/lstm", "-n", "20", "--temperature", "0")):
        said = run(*argv, cwd=world)
        assert said.code == 0, said.err
        assert not CONTROL.search(said.out + said.err)


@pytest.mark.slow
def test_no_color_is_honoured_where_colour_is_forced(world: Path) -> None:
    assert "\x1b[" in run("models", cwd=world, FORCE_COLOR="1").out
    plain = run("models", cwd=world, FORCE_COLOR="1", NO_COLOR="1").out
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]m", plain)  # bold may stay, colours may not


def test_a_closed_pipe_is_quiet(world: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-m", "statewise", "generate", "runs/lstm", "-n", "100000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=world,
        env=environment(),
    )
    assert child.stdout is not None
    assert child.stderr is not None
    child.stdout.read(5)
    child.stdout.close()
    assert child.stderr.read() == b""
    child.stderr.close()
    assert child.wait(timeout=60) == 0


def test_version_and_help_do_not_load_torch(tmp_path: Path) -> None:
    code = (
        "import sys; from statewise import cli; sys.argv = ['statewise', sys.argv[1]]; "
        "cli._run(); sys.exit('torch' in sys.modules)"
    )
    for argument, shown in (("--version", statewise.__version__), ("--help", "verify")):
        done = subprocess.run(
            [sys.executable, "-c", code, argument],
            capture_output=True,
            encoding="utf-8",
            cwd=tmp_path,
            env=environment(),
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert shown in done.stdout
