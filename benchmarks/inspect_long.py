"""Peak memory and CPU time of each lens on a long input, each in a fresh process.

    python benchmarks/inspect_long.py runs/lstm runs/transformer runs/ttt_linear
    python benchmarks/inspect_long.py runs/tree runs/classification --tokens 100000 --markdown

A language model reads `--tokens` tokens of its training text; for a classifier one row has that many words, for a tree
run one tree has that many nodes, each together with a short one. `progress` counts the lines of progress that are
printed; the first may come after two seconds. Peaks are those of the whole process: the row `(nothing)` shows the part
of PyTorch alone.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from command_line import console
from rich.table import Table

from statewise.data import open_corpus
from statewise.inspection.lenses import LENSES
from statewise.tasks import LanguageModelRun, Run, load
from statewise.tasks.classification import ClassificationRun

NOTHING = "(nothing)"


class Taken(NamedTuple):
    run: str
    lens: str
    mebibytes: float
    seconds: float  # of a processor, starting Python and drawing the page among them
    progress: int  # lines
    failed: str  # the last line of what it said; "": it did not


def long_text(run: LanguageModelRun, tokens: int) -> str:
    ids = open_corpus(run.spec.data, tokenizer=run.tokenizer).train.tokens[:tokens]
    text = run.tokenizer.decode(ids.tolist())
    return text * (1 + tokens // max(len(ids), 1) if len(ids) < tokens else 1)


def long_tree(nodes: int) -> str:
    """Balanced, each leaf one of two words; each label is the smaller of its children's."""
    level = [f"({at % 3 % 2} {at % 3 % 2})" for at in range((nodes + 1) // 2)]
    while len(level) > 1:
        pairs = zip(level[::2], level[1::2])
        joined = [f"({min(left[1], right[1])} {left} {right})" for left, right in pairs]
        level = joined + level[2 * len(joined) :]
    return level[0]


def given(run: Run, tokens: int, folder: Path) -> list[str]:
    """What is looked at, as words of the command line."""
    match run.spec.task:
        case "language_model":
            assert isinstance(run, LanguageModelRun)
            path = folder / "long.txt"
            path.write_text(long_text(run, tokens), encoding="utf-8")
            return ["--text", str(path)]
        case "tree":
            path = folder / "long.trees.txt"
            path.write_text(f"{long_tree(tokens)}\n(0 (1 1) (0 0))\n", encoding="utf-8")
            return ["--data", str(path)]
        case "classification":
            assert isinstance(run, ClassificationRun)
            path, label = folder / "long.tsv", run.classes.names[0]
            row = " ".join(["one long row of many words"] * (tokens // 6))
            path.write_text(f"text\tlabel\n{row}\t{label}\na short row\t{label}\n", encoding="utf-8")
            return ["--data", str(path)]
        case task:
            raise SystemExit(f"a {task} run has no long text here: name runs of language models, trees or classifiers")


def measured(run: str, lens: str, words: Sequence[str]) -> Taken:
    with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as out:
        child = subprocess.Popen([sys.executable, *words], stderr=said, stdout=out)
        _, status, used = os.wait4(child.pid, 0)  # of this child alone
        child.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        lines = said.read().decode().splitlines()
    peak = used.ru_maxrss / (1 << 20 if sys.platform == "darwin" else 1 << 10)
    failed = (lines or ["no word"])[-1] if child.returncode else ""
    told = sum(" a second" in line or line.endswith(" s so far") for line in lines)
    return Taken(Path(run).name, lens, peak, used.ru_utime + used.ru_stime, told, failed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", help="trained folders")
    parser.add_argument("--tokens", type=int, default=100_000, help="tokens, words or nodes")
    parser.add_argument("--lenses", nargs="*", help="default: all that look at the task")
    parser.add_argument("--markdown", action="store_true", help="a table for the docs")
    arguments = parser.parse_args()
    found = [measured("-", NOTHING, ["-c", "import statewise.inspection.lenses"])]
    for name in arguments.runs:
        run = load(name, device="cpu")
        with tempfile.TemporaryDirectory() as folder:
            what = given(run, arguments.tokens, Path(folder))
            for lens in LENSES:
                if lens.needs_run and lens.name in (arguments.lenses or [one.name for one in LENSES]):
                    words = [
                        *("-m", "statewise", "inspect", name, lens.name),
                        *what,
                        "--out",
                        f"{folder}/page",
                        "--static",
                    ]
                    if lens.name == "gates":  # by default it reads the beginning alone
                        words += ["--set", f"tokens={arguments.tokens}"]
                    found.append(measured(name, lens.name, words))
                    print(*found[-1], file=sys.stderr)
    columns = ("run", "lens", "peak, MiB", "processor seconds", "lines of progress")
    cells = [
        (one.run, one.lens, f"{one.mebibytes:,.0f}", f"{one.seconds:.0f}", one.failed or str(one.progress))
        for one in found
    ]
    if arguments.markdown:
        print("| " + " | ".join(columns) + " |\n|---|---|--:|--:|--:|")
        for row in cells:
            print("| " + " | ".join(row) + " |")
        return
    table = Table(*columns)
    for row in cells:
        table.add_row(*row)
    console().print(table)
    if any(one.failed for one in found):
        raise SystemExit("a lens failed")


if __name__ == "__main__":
    main()
