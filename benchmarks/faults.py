"""What a run survives: kill -9 while saving, signals in every phase, a full disk, damaged folders, cuts.

    python benchmarks/faults.py [--kills 200] [--folders 5000] [--signals 20] [--quick] [--only kills]

torch is imported once; every trial is a fork of that process that runs the real command line. Prints a
table and exits with 1 if any trial failed.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"

import torch
from fault_cuts import cuts
from fault_disk import full_disk
from fault_folders import damaged, make_pattern
from fault_kills import kills
from fault_signals import signals
from fault_trial import TEXT, Row, say


@contextmanager
def workplace() -> Iterator[tuple[Path, Path]]:
    with tempfile.TemporaryDirectory(prefix="statewise-faults-") as name:
        home = Path(name)
        (home / "text.txt").write_text(TEXT)
        yield home / "text.txt", home


def table(rows: list[Row]) -> str:
    lines = ["| fault | trials | passed | seen | seconds |", "|---|---:|---:|---|---:|"]
    lines += [f"| {r.fault} | {r.trials:,} | {r.passed:,} | {r.seen} | {r.seconds:.0f} |" for r in rows]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--folders", type=int, default=5000)
    parser.add_argument("--signals", type=int, default=20, help="in each of four phases")
    parser.add_argument("--quick", action="store_true", help="a tenth of everything")
    parser.add_argument("--only", choices=["kills", "signals", "disk", "cuts", "folders"], help="one part of it")
    options = parser.parse_args()
    share = 10 if options.quick else 1
    torch.set_num_threads(1)
    rows: list[Row] = []
    with workplace() as (text, home):
        pattern = make_pattern(text, home)  # and with it, all that a first training imports
        sections = {
            "kills": kills(options.kills // share, text, home),
            "signals": signals(options.signals // share, text, home),
            "disk": full_disk(text, home, every=10 if options.quick else 1),
            "cuts": cuts(text, home, each=1 if options.quick else 5),
            "folders": damaged(options.folders // share, pattern, home),
        }
        for name, section in sections.items():
            if options.only in (None, name):
                rows += section
    print(table(rows))
    failed = [row.fault for row in rows if row.passed < row.trials]
    if failed:
        say(f"FAILED: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
