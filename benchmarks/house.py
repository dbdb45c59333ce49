"""How finely the package is cut: lines, files, imports past a folder's surface, files that a step goes through.

    python benchmarks/house.py [--json FILE]

A step is one training step of a small LSTM after the first few, a token one that it then generates; both on the CPU.
"""

import ast
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from asked import console, options, write
from rich.table import Table

import statewise as sw
from statewise.training.progress import Silent

_PACKAGE = Path(sw.__file__).parent
_SMALL = 60


def modules() -> dict[Path, str]:
    return {path: path.read_text(encoding="utf-8") for path in sorted(_PACKAGE.rglob("*.py"))}


def past_surface(path: Path, tree: ast.AST) -> int:
    """Imports of a module inside another folder of the package, where the folder itself could be asked."""
    own = path.relative_to(_PACKAGE).parts[0]
    count = 0
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("statewise."):
            parts = node.module.split(".")
            count += len(parts) > 2 and parts[1] != own and (_PACKAGE / parts[1]).is_dir()
    return count


class Entered:
    """The files of the package that are entered between `start` and `stop`, and how often one calls another."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.hops = 0

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(str(_PACKAGE)):
            self.files.add(name)
            self.hops += frame.f_back is not None and frame.f_back.f_code.co_filename != name

    def during(self, work: Callable[[], Any]) -> "Entered":
        sys.setprofile(self)
        try:
            work()
        finally:
            sys.setprofile(None)
        return self


def one_step(folder: Path) -> Entered:
    """From the end of one step to the end of the next, without saving or evaluating."""
    seen = Entered()

    def on_step(step: int) -> None:
        sys.setprofile(seen if step == 5 else None)

    (folder / "text.txt").write_text("a text that a small model reads, again and again. " * 200, encoding="utf-8")
    settings = {"model.width": 16, "train.evaluate_every": 50, "train.save_every": 50, "train.log_every": 50}
    sw.train(
        "lstm",
        data=folder / "text.txt",
        steps=8,
        settings=settings,
        out=folder / "run",
        display=Silent(),
        on_step=on_step,
    )
    sys.setprofile(None)
    return seen


def one_token(folder: Path) -> Entered:
    model = sw.load(folder / "run").model
    token_B, state = torch.zeros(1, dtype=torch.int64), model.init_state(1)
    with torch.no_grad():
        for _ in range(3):
            _, state = model.step(token_B, state)
        return Entered().during(lambda: model.step(token_B, state))


def main() -> None:
    parser = options(__doc__)
    asked = parser.parse_args()
    texts = modules()
    trees = {path: ast.parse(text) for path, text in texts.items()}
    named = {path: text for path, text in texts.items() if path.name != "__init__.py"}
    lines = {path: text.count("\n") for path, text in named.items()}
    single = sum(
        lines[path] < 45 and sum(isinstance(node, ast.FunctionDef | ast.ClassDef) for node in trees[path].body) == 1
        for path in named
    )
    with tempfile.TemporaryDirectory() as folder:
        step, token = one_step(Path(folder)), one_token(Path(folder))
    rows = {
        "lines of Python": sum(text.count("\n") for text in texts.values()),
        "files, without __init__": len(named),
        "lines a file, median": int(statistics.median(lines.values())),
        f"files under {_SMALL} lines": sum(count < _SMALL for count in lines.values()),
        "files with one definition, under 45 lines": single,
        "imports past a folder's surface": sum(past_surface(path, tree) for path, tree in trees.items()),
        "files entered by a training step": len(step.files),
        "calls from file to file in it": step.hops,
        "files entered by a step of the model alone": len(token.files),
    }
    table = Table(title="The package")
    table.add_column("what")
    table.add_column("count", justify="right")
    for what, count in rows.items():
        table.add_row(what, f"{count:,}")
    console().print(table)
    write(asked.json, [rows])


if __name__ == "__main__":
    main()
