"""`statewise data build`: from any file to a folder that `train --data` reads."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command import TEXT, TINY, call, environment


def test_build_train_generate(tmp_path: Path) -> None:
    source, out = tmp_path / "pages.jsonl", tmp_path / "tokens"
    source.write_text("".join(json.dumps({"page": {"body": TEXT[:700]}}) + "\n" for _ in range(5)))
    words = ("--out", str(out), "--vocab", "300", "--workers", "1", "--set", "data.text_column=page.body")
    built = call("data", "build", str(source), *words, "--json")
    assert built.code == 0, built.err
    said = json.loads(built.out)
    assert said["train"]["bytes"] + said["validation"]["bytes"] == 3500
    assert not built.err
    trained = call("train", "gru", "--data", str(out), "--out", str(tmp_path / "run"), *TINY, "--json")
    assert trained.code == 0, trained.err
    assert call("evaluate", str(tmp_path / "run")).code == 0
    assert call("generate", str(tmp_path / "run"), "--prompt", "the cat", "--tokens", "5").code == 0
    refused = call("evaluate", str(tmp_path / "run"), "--data", str(out))
    assert (refused.code, "holds tokens, and a text is read here" in refused.err) == (2, True)


def test_again_says_the_same_and_other_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(TEXT)
    words = ("--out", str(tmp_path / "tokens"), "--tokenizer", "char", "--workers", "1")
    first, again = (call("data", "build", str(tmp_path / "a.txt"), *words) for _ in range(2))
    assert first.out == again.out
    assert "tokens in 1 shard," in first.out
    (tmp_path / "a.txt").write_text(TEXT * 2)
    refused = call("data", "build", str(tmp_path / "a.txt"), *words)
    assert refused.code == 2
    assert "holds tokens of another text" in refused.err
    assert "--out" in refused.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("build", "none.txt"), "does not exist"),
        (("build", "-"), "standard input cannot be read here"),
        (("build", "a.txt", "--workers", "0"), "--workers 0"),
        (("build", "a.txt", "--tokenizer", "bpf"), "neither a kind nor a file"),
        (("build", "a.txt", "--set", "data.colour=3"), "colour"),
        (("rebuild", "a.txt"), "build"),
    ],
)
def test_what_is_wrong_is_said(
    words: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text(TEXT)
    refused = call("data", *words, "--out", "tokens")
    assert (refused.code, message in refused.err) == (2, True), refused.err


@pytest.mark.slow
def test_a_killed_build_leaves_no_process_and_goes_on(tmp_path: Path) -> None:
    """Killed without a warning while two processes encode."""
    (tmp_path / "a.txt").write_text("".join(f"{n * n} is the square of {n}\n" for n in range(600_000)))
    words = ["data", "build", str(tmp_path / "a.txt"), "--tokenizer", "byte", "--workers", "2", "--quiet", "--out"]
    killed = subprocess.Popen(
        [sys.executable, "-m", "statewise", *words, str(tmp_path / "killed")], env=environment(), start_new_session=True
    )
    while not list((tmp_path / "killed").glob("train-*.tokens")) and killed.poll() is None:
        time.sleep(0.05)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and _alive(killed.pid):
        time.sleep(0.1)
    assert not _alive(killed.pid)
    for name in ("killed", "whole"):
        built = call(*words, str(tmp_path / name))
        assert built.code == 0, built.err
    files = [
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir() if not path.name.startswith(".")}
        for name in ("killed", "whole")
    ]
    assert files[0] == files[1]


def _alive(session: int) -> bool:
    return subprocess.run(["ps", "-o", "pid=", "-s", str(session)], capture_output=True, text=True).stdout.strip() != ""
