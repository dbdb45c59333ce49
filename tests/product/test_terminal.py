"""Nothing that a folder, a file, a model or a user wrote can control the terminal, or a spreadsheet."""

import contextlib
import io
import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from command import Said
from rich.table import Table as RichTable
from safetensors.torch import load_file, save_file
from task_runs import make_run
from test_hostile_run import vouched

from statewise import cli
from statewise.display.letter import safe
from statewise.display.terminal import SafeConsole
from statewise.figures.table import csv_text

TITLE = "\x1b]0;title\x07"  # sets the title of the window
HARM = f"{TITLE}\x1b[2J\x9b31m\u202eevil"
SHOWN = re.compile(r"(␛|\\x1b|\\u001[bB])]0;title")  # a sign, or as Python and JSON write it
OURS = re.compile(r"\x1b\[[\d;]*m")  # colours, which Rich writes


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def on_screen(*argv: str) -> Said:
    """`statewise ...` on a terminal."""
    out, err, before = Screen(), Screen(), sys.argv
    sys.argv = ["statewise", *argv]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = cli._run()
    finally:
        sys.argv = before
    return Said(code, out.getvalue(), err.getvalue())


def check(said: Said, code: int) -> None:
    text = said.out + said.err
    assert said.code == code, text
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", OURS.sub("", text)), text
    assert SHOWN.search("".join(text.split("\n"))), text


@pytest.fixture
def run(tasks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COLUMNS", "250")
    monkeypatch.chdir(tmp_path)
    whole = make_run("classifier", tasks)
    return Path(shutil.copytree(whole, tmp_path / "run", ignore=shutil.ignore_patterns("checkpoints")))


def in_manifest(run: Path) -> None:
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["files"][HARM] = {"bytes": 1, "sha256": ""}
    (run / "manifest.json").write_text(json.dumps(manifest))


def in_sizes(run: Path) -> None:
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["files"]["run.toml"]["bytes"] = HARM
    (run / "manifest.json").write_text(json.dumps(manifest))


def in_settings(run: Path) -> None:
    vouched(run, "run.toml", (run / "run.toml").read_bytes() + f"\n[{json.dumps(HARM)}]\n".encode())


def in_weights(run: Path) -> None:
    weights = load_file(run / "model.safetensors")
    save_file({**weights, HARM: next(iter(weights.values())).clone()}, run / "model.safetensors")
    vouched(run, "model.safetensors", (run / "model.safetensors").read_bytes())


@pytest.mark.parametrize("harm", [in_manifest, in_sizes, in_settings, in_weights])
@pytest.mark.parametrize("verb", ["evaluate", "generate"])
def test_a_folder_that_is_refused(verb: str, harm: Callable[[Path], None], run: Path) -> None:
    harm(run)
    check(on_screen(verb, "run"), 2)


def test_labels(run: Path) -> None:
    labels = json.loads((run / "labels.json").read_text())["labels"]
    renamed = {name.replace("bad", HARM): count for name, count in labels.items()}
    vouched(run, "labels.json", json.dumps({"labels": renamed}).encode())
    Path("rows.tsv").write_text("text\tlabel\n" + f"a dull film\t{HARM}\na warm film\tgood\n" * 5)
    check(on_screen("evaluate", "run", "--data", "rows.tsv"), 0)
    Path("texts.tsv").write_text("text\n" + "a dull cold long film\n" * 9 + "a warm film\na clever year\n")
    said = on_screen("predict", "run", "texts.tsv")
    if said.out != "good\n" * 11:
        check(said, 0)


@pytest.mark.parametrize(
    "argv",
    [
        ("train", "lstm", "--set", f"model.{HARM}=1"),
        ("train", "lstm", "--set", f"model.width={HARM}"),
        ("train", "lstm", "--data", f"{HARM}.txt"),
        ("train", f"{HARM}.toml"),
        ("train", HARM),
        ("generate", HARM),
        ("evaluate", "run", f"--{HARM}"),
        (HARM,),
        ("compare", HARM),
    ],
)
def test_arguments(argv: tuple[str, ...], run: Path) -> None:
    check(on_screen(*argv), 2)


@pytest.mark.parametrize(("name", "recipe"), [("a.csv", "classification"), ("a.csv", "forecasting")])
def test_headers(name: str, recipe: str, run: Path) -> None:
    header = json.dumps(HARM, ensure_ascii=False)
    Path(name).write_text(f"{header},{header}\n1,2\n")
    check(on_screen("train", recipe, "--data", name, "--out", "out"), 2)


def test_a_finished_training_names_its_folder(run: Path, tasks: Path) -> None:
    words = ("--set", "train.steps=1", "--set", "model.width=4", "--quiet")
    check(on_screen("train", "classification", "--data", str(tasks / "rows.tsv"), *words, "--out", HARM), 0)


def test_names_that_are_no_text_are_told(run: Path) -> None:
    """A file name of bytes that are not UTF-8 has halves of letters in it, which no stream can write."""
    said = on_screen("evaluate", "run", "--data", "\udcff.txt", "--set", "data.text=\udcff")
    assert said.code == 2
    (said.out + said.err).encode()


def test_tables_and_bars_of_rich() -> None:
    screen = Screen()
    table = RichTable(HARM)
    table.add_row(HARM)
    console = SafeConsole(file=screen, width=200, force_terminal=True)
    console.print(table, HARM, style="bold")
    console.redraw(HARM)
    text = OURS.sub("", screen.getvalue()).replace("\r\x1b[2K", "")
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", text)
    assert text.count("␛]0;title␇␛[2J⟨009B⟩31m⟨202E⟩evil") == 4
    assert "\x1b[1m" in screen.getvalue(), "its own codes stay"


def test_what_is_shown_instead() -> None:
    assert safe("a\tb\nc, ä, 中, 👩‍🚀") == "a\tb\nc, ä, 中, 👩‍🚀"
    assert safe("\x1b\r\x9b\u202e\u2066\ud83d") == "␛␍⟨009B⟩⟨202E⟩⟨2066⟩⟨D83D⟩"


def test_cells_that_a_spreadsheet_would_compute() -> None:
    cells = ["=1+1", "+cmd", "-x", "@sum", "-1.5", "+2e3", "-inf", "a=b", 3.5, None]
    assert csv_text([cells]) == "'=1+1,'+cmd,'-x,'@sum,-1.5,+2e3,-inf,a=b,3.5,\r\n"
