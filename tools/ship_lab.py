"""Measure what the lab shows without measuring it again, and put it into the package.

python tools/ship_lab.py
"""

import json
from pathlib import Path

from statewise.disk import write
from statewise.lab.extra import bill, truncation
from statewise.tasks import LanguageModelRun, load

_RUNS = ("shakespeare-elman", "shakespeare-lstm", "shakespeare-transformer", "shakespeare-ttt")


def main() -> None:
    measured = []
    for name in _RUNS:
        run = load(name, device="cpu")
        assert isinstance(run, LanguageModelRun)
        measured.append(truncation(run))
    record = {"bill": bill(), "truncation": measured}
    path = Path(__file__).parents[1] / "statewise/lab/prepared.json"
    write(path, json.dumps(record, separators=(",", ":")) + "\n")
    print(f"{path.name}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
