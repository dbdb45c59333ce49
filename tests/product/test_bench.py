"""`statewise bench`: the list, a benchmark with its own options, and which implementation runs, and why."""

import json
import os
import subprocess
import sys

import pytest
from command import call, run

from statewise.kernels.choice import choose, force, record


def test_the_list_names_every_script_that_runs() -> None:
    listed = {row["name"]: row["measures"] for row in json.loads(call("bench", "--json").out)}
    assert {"recurrent", "decode", "tree", "ngram", "growth"} <= listed.keys()
    assert not {"damage", "fault_trial", "recurrent_case"} & listed.keys()  # parts of others
    assert all(listed.values())
    assert "tree" in call("bench").out


@pytest.mark.slow
def test_what_follows_the_name_is_the_benchmarks_own() -> None:
    done = run("bench", "tree", "--trees", "2", "--leaves", "3", "--width", "4", "--rounds", "1")
    assert done.code == 0
    assert "2 random trees of 3 leaves" in done.out
    told = run("bench", "tree", "--help")
    assert told.code == 0
    assert "--leaves" in told.out


def test_explain_lists_who_cannot_do_what_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ("bench", "--explain", "--json", "--model", "gru", "--model", "lstm", "--width", "8", "--time", "20")
    monkeypatch.setenv("STATEWISE_KERNEL", "batched")
    rows = {row["model"]: row for row in json.loads(call(*asked).out)["choices"]}
    assert rows["gru"]["implementation"] == "batched"
    assert rows["lstm"]["implementation"] is None
    assert "asks for the batched LSTM, but there is none" in rows["lstm"]["reason"]
    monkeypatch.setenv("STATEWISE_KERNEL", "fast")
    assert "asks for the kernel 'fast'" in call(*asked).err


def test_explain_says_what_really_ran() -> None:
    found = json.loads(
        call("bench", "--explain", "--json", "--model", "leaky", "--model", "lstm", "--width", "8", "--batch", "2").out
    )
    assert found["width"] == 8
    rows = {row["model"]: row for row in found["choices"]}
    assert rows["leaky"]["implementation"] == "naive"
    assert "no leak" in rows["leaky"]["reason"]
    assert rows["lstm"]["implementation"] != "naive"


@pytest.mark.slow
def test_without_triton_and_without_a_gpu_everything_runs() -> None:
    code = """if True:
        import sys
        sys.modules["triton"] = None  # from here on, importing it fails
        import torch, statewise.nn
        from statewise.cli import main
        module = statewise.nn.GRU(3, 4)
        module(torch.zeros(20, 2, 3))[0].sum().backward()
        sys.argv = ["statewise", "bench", "--explain", "--json", "--width", "16", "--batch", "2", "--time", "8"]
        main()
    """
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "STATEWISE_KERNEL": ""},
    )
    assert done.returncode == 0, done.stderr
    found = {row["model"]: row for row in json.loads(done.stdout)["choices"]}
    assert {"elman", "gru", "lstm", "transformer", "ttt_linear", "mingru", "mamba2", "gated_delta"} <= found.keys()
    assert "triton: it needs a GPU" in found["ttt_linear"]["reason"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("bench", "tre"), "did you mean 'tree'"),
        (("bench", "--explain", "tree"), "leave one of them out"),
        (("bench", "--explain", "--model", "markov"), "learns by gradients"),
        (("bench", "--wrong"), "no option --wrong"),
        (("bench", "--width", "8", "tree"), "follow its name: statewise bench tree --width"),
        (("bench", "--json", "tree"), "follow its name: statewise bench tree --json"),
        (("bench", "--model", "lstm"), "use it with --explain"),
    ],
)
def test_mistakes(words: tuple[str, ...], told: str) -> None:
    done = call(*words)
    assert done.code == 2
    assert told in done.err


def test_only_what_is_chosen_inside_is_recorded() -> None:
    with record() as chosen:
        choose("scan", obstacles=[], fast=("batched",))
        with force("naive"):
            choose("LSTM", obstacles=[])
    choose("GRU", obstacles=[])
    assert {op: one.implementation for op, one in chosen.items()} == {"scan": "batched", "LSTM": "naive"}
