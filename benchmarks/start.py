"""How long a command takes to start: the help, the import of the package, and the first generated token.

    python benchmarks/start.py [--starts 10] [--json FILE]

Medians over processes, after one that is not counted: seconds until the process has said what is waited for (a line of
help, the end of the import, the first token after the prompt), and CPU seconds of the whole process, which depend less
on what else is at work. `python -c "import torch"` is measured in alternation with them, for comparison.
"""

import subprocess
import sys
import time
from resource import RUSAGE_CHILDREN, getrusage
from statistics import median

from command_line import console, options, positive, write
from rich.table import Table

PROMPT = "ROMEO:"
GENERATE = ["-m", "statewise", "generate", "shakespeare-lstm", "--prompt", PROMPT, "--tokens", "1"]
# What is started, and after how many bytes of output it has started.
STARTS = {
    "statewise --help": (["-m", "statewise", "--help"], 1),
    "import statewise": (["-c", "import statewise; print('imported', flush=True)"], 1),
    "first token of generate shakespeare-lstm": (GENERATE, len(PROMPT) + 1),
    "import torch": (["-c", "import torch; print('imported', flush=True)"], 1),
    "python": (["-c", "print('started', flush=True)"], 1),
}


def start(words: list[str], size: int) -> tuple[float, float]:
    """Seconds until it has written so many bytes, and CPU seconds until its end."""
    before, begin = getrusage(RUSAGE_CHILDREN), time.perf_counter()
    with subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        said = process.stdout.read(size)
        wall = time.perf_counter() - begin
        process.stdout.read()
    if process.returncode or len(said) < size:
        raise SystemExit(f"python {' '.join(words)} ended with code {process.returncode}")
    after = getrusage(RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--starts", type=positive, default=10, metavar="N", help="processes of each (default: 10)")
    asked = parser.parse_args()
    measured: dict[str, list[tuple[float, float]]] = {name: [] for name in STARTS}
    for _ in range(asked.starts + 1):
        for name, (words, size) in STARTS.items():
            measured[name].append(start(words, size))
    table, rows = Table("what", "seconds", "CPU seconds"), []
    for name, found in measured.items():
        wall, cpu = (median(column) for column in zip(*found[1:], strict=True))
        rows.append({"what": name, "s": wall, "cpu_s": cpu})
        table.add_row(name, f"{wall:.2f}", f"{cpu:.2f}")
    console().print(table)
    write(asked.json, rows, starts=asked.starts)


if __name__ == "__main__":
    main()
