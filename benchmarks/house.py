"""How the package is divided: lines, files, imports past a folder's surface, files that a step enters.

    python benchmarks/house.py [--json FILE] [--files]

The training step is a late one of a small LSTM, without an evaluation or a checkpoint; the token is one that this model
then generates. Both run on the CPU. `--files` lists the files.
"""

import ast
import statistics
import sys
import tempfile
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from command_line import console, options, write
from rich.table import Table

import statewise as sw
from statewise.decoding import begin, generate
from statewise.training import Silent

_PACKAGE = Path(sw.__file__).parent
_SMALL, _SINGLE = 60, 45  # lines
_STEP = 5  # the steps before it warm up


def past_surface(path: Path, tree: ast.AST) -> int:
    """Imports from inside another folder, past its `__init__`; a nested package has an `__init__` of its own."""
    own = path.relative_to(_PACKAGE).parts[0]
    count = 0
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("statewise."):
            _, *parts = node.module.split(".")
            count += len(parts) > 1 and parts[0] != own and not _PACKAGE.joinpath(*parts, "__init__.py").exists()
    return count


class Entered:
    """A profiler: collects the files of the package whose functions are called, and counts calls between files."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.hops = 0

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(str(_PACKAGE)):
            self.files.add(str(Path(path).relative_to(_PACKAGE)))
            self.hops += frame.f_back is not None and frame.f_back.f_code.co_filename != path


def training_step(folder: Path) -> Entered:
    """From the end of one step to the end of the next."""
    entered = Entered()

    def on_step(step: int) -> None:
        sys.setprofile(entered if step == _STEP else None)

    (folder / "text.txt").write_text("a text that a small model reads, again and again. " * 200, encoding="utf-8")
    settings = {"model.width": 16, "train.evaluate_every": 50, "train.save_every": 50, "train.log_every": 50}
    try:
        sw.train(
            "lstm",
            data=folder / "text.txt",
            steps=_STEP + 3,
            settings=settings,
            out=folder / "run",
            display=Silent(),
            on_step=on_step,
        )
    finally:
        sys.setprofile(None)
    return entered


def generated_token(folder: Path) -> Entered:
    """One token through `generate`, after a few others."""
    run = sw.load(folder / "run")
    prompt_BT = torch.zeros(1, 2, dtype=torch.int64)
    tokens = generate(run.model, begin(run.model, prompt_BT, vocab=run.model.vocab), sw.Sampling())
    for _ in range(_STEP):
        next(tokens)
    entered = Entered()
    sys.setprofile(entered)
    try:
        next(tokens)
    finally:
        sys.setprofile(None)
    return entered


def sizes() -> dict[str, int]:
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(_PACKAGE.rglob("*.py"))}
    trees = {path: ast.parse(text) for path, text in texts.items()}
    lines = {path: text.count("\n") for path, text in texts.items() if path.name != "__init__.py"}
    single = [
        path
        for path, count in lines.items()
        if count < _SINGLE and sum(isinstance(node, ast.FunctionDef | ast.ClassDef) for node in trees[path].body) == 1
    ]
    return {
        "lines of Python": sum(text.count("\n") for text in texts.values()),
        "files, without __init__": len(lines),
        "median lines per file": int(statistics.median(lines.values())),
        f"files under {_SMALL} lines": sum(count < _SMALL for count in lines.values()),
        f"files with one definition, under {_SINGLE} lines": len(single),
        "imports past a folder's surface": sum(past_surface(path, tree) for path, tree in trees.items()),
    }


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--files", action="store_true", help="list the files that the step and the token enter")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        step, token = training_step(Path(folder)), generated_token(Path(folder))
    rows = {
        **sizes(),
        "files entered by a training step": len(step.files),
        "calls between files in it": step.hops,
        "files entered by a generated token": len(token.files),
        "calls between files in that": token.hops,
    }
    table = Table(title="The package")
    table.add_column("what")
    table.add_column("count", justify="right")
    for what, count in rows.items():
        table.add_row(what, f"{count:,}")
    console().print(table)
    if chosen.files:
        for name, entered in (("training step", step), ("generated token", token)):
            console().print(f"{name}: {', '.join(sorted(entered.files))}")
    write(chosen.json, [rows], training_step=sorted(step.files), generated_token=sorted(token.files))


if __name__ == "__main__":
    main()
