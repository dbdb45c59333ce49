"""Measure what the lab shows without measuring it again, and put it into the package.

python tools/ship_lab.py
"""

import argparse
import json
from pathlib import Path

from statewise.disk import write
from statewise.lab.extra import bill, truncation
from statewise.tasks import LanguageModelRun, load

_PLACE = Path(__file__).parents[1] / "statewise/lab/prepared.json"
_RUNS = ("shakespeare-elman", "shakespeare-lstm", "shakespeare-transformer", "shakespeare-ttt")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=_PLACE, metavar="FILE", help="another place, to try it")
    given = parser.parse_args()
    measured = []
    for name in _RUNS:
        run = load(name, device="cpu")
        assert isinstance(run, LanguageModelRun)
        measured.append(truncation(run))
    record = {"bill": bill(), "truncation": measured}
    path = given.out
    write(path, json.dumps(record, separators=(",", ":")) + "\n")
    print(f"{path.name}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
