"""Every script in benchmarks/: says what it takes, needs no GPU or says so in one line, and writes its numbers down."""

import json
import os
import re
import runpy
import sys
from pathlib import Path

import pytest
import torch

from statewise.models import LINEAGE

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "benchmarks"
SCRIPTS = sorted(path.stem for path in FOLDER.glob("*.py") if "__main__" in path.read_text(encoding="utf-8"))
without_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="here is a GPU, and they would run")


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Scripts find each other, and leave neither settings nor files behind."""
    for name, value in os.environ.items():
        monkeypatch.setenv(name, value)
    for name in ("OMP_NUM_THREADS", "STATEWISE_UNPROVEN"):  # which some set for themselves
        monkeypatch.setenv(name, os.environ.get(name, ""))
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.chdir(tmp_path)


def started(monkeypatch: pytest.MonkeyPatch, name: str, *words: str) -> object:
    """What the script leaves with: None, a code or a line."""
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *words])
    try:
        runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
    except SystemExit as left:
        return left.code
    return None


def options_of(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str) -> set[str]:
    assert started(monkeypatch, name, "--help") == 0
    return set(re.findall(r"--[a-z][\w-]*", capsys.readouterr().out))


@pytest.mark.parametrize("name", SCRIPTS)
def test_it_says_what_it_takes_and_measures_nothing(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert started(monkeypatch, name, "--help") == 0
    told = capsys.readouterr().out
    assert told.startswith(f"usage: {name}.py")
    assert started(monkeypatch, name, "--no-such-option") == 2
    assert not list(Path().iterdir())


@without_gpu
@pytest.mark.parametrize(
    "words",
    [
        "gpu_ops",
        "lengths",
        "recurrent --check",
        "recurrent --time",
        "recurrent --safe",
        "recurrent_norm",
        "recurrent_sanitize",
        "recurrent_triton",
        "recurrent_tune",
        "decode_step",
        "ttt",
        "decode --device cuda",
        "train_step --device cuda",
        "cross_entropy --device cuda",
    ],
)
def test_where_there_is_no_gpu_one_line_says_so(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, *rest = words.split()
    assert started(monkeypatch, name, *rest) == "this needs an NVIDIA GPU, and PyTorch sees none here"
    assert not list(Path().iterdir())  # nothing that a later run would take for measured


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("recurrent", "say what to do: --check, --time, --safe or --report FILE"),
        ("recurrent --report none.json", "'none.json' is not a file"),
        ("recurrent --kernel persistant --check", "invalid choice: 'persistant'"),
        ("recurrent_tune --table none.jsonl", "'none.jsonl' is not a file"),
        ("decode --device gpu", "'gpu' is not a device"),
        ("nn --threads 0", "'0' is not a number from 1 on"),
        ("nn --kinds LTSM", "invalid choice: 'LTSM'"),
        ("nn --kernel best", "invalid choice: 'best'"),
        ("growth --longest 3", "less than the shortest context"),
        ("ngram --text none.txt", "'none.txt' is not a file"),
        ("ngram --characters 50", "NLTK is compared from"),
        ("corpus chars", "'chars' is not a kind"),
        ("cpu_char --peer nanoGPT", "--peer needs --text"),
    ],
)
def test_mistakes(words: str, told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    name, *rest = words.split()
    assert started(monkeypatch, name, *rest) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "difference"),
    [
        ("tree --trees 3 --leaves 4 --width 6 --rounds 1", 1e-5),
        ("ragged --width 4 --inputs 3 --repeats 1", 1e-5),
        ("ngram --characters 20000 --order 2 --nltk 5000", 1e-3),
        ("growth --longest 256 --steps 1 --width 16", None),
        pytest.param("dependencies --add scikit-learn", None, marks=pytest.mark.slow),
        pytest.param("start --starts 1", None, marks=pytest.mark.slow),
    ],
)
def test_numbers_are_written_and_both_sides_agree(
    words: str, difference: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, *rest = words.split()
    assert started(monkeypatch, name, *rest, "--json", "to/numbers.json") is None
    written = json.loads(Path("to/numbers.json").read_text(encoding="utf-8"))
    assert written["torch"] == torch.__version__
    assert all(written["rows"])
    if difference is not None:
        found = [row["difference"] for row in (written, *written["rows"]) if "difference" in row]
        assert found
        assert max(found) < difference


COMMAND = re.compile(r"python benchmarks/(\w+)\.py([^`\n#]*)")
COMMANDS = {
    found.groups()
    for page in [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]
    for found in COMMAND.finditer(page.read_text(encoding="utf-8").replace("\\\n", " "))
}


def test_options_in_the_documentation_exist(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert {name for name, _ in COMMANDS} <= set(SCRIPTS)
    for name in {name for name, _ in COMMANDS}:
        known = options_of(monkeypatch, capsys, name)
        for _, rest in filter(lambda command: command[0] == name, COMMANDS):
            assert set(re.findall(r"--[a-z][\w-]*", rest)) <= known, f"{name}{rest}"


def test_states_survive_turns_of_every_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Forked, deleted, restored, continued and saved at every token, with the same bits as a text without turns."""
    pytest.importorskip("starlette", reason="the extra `serve` is not installed")
    words = ("--only", "cycles", "--turns", "12", "--device", "cpu", "--json", "cycles.json")
    assert started(monkeypatch, "serve", *words) is None
    rows = json.loads((tmp_path / "cycles.json").read_text())["rows"]
    assert {row["name"] for row in rows} == {ancestor.name for ancestor in LINEAGE}
    for row in rows:
        assert row["found"] == {"turns": 12, "equal tokens": 12, "equal last states": "1 of 1"}, row["name"]
