"""Put the lab's lineage into the package: trained runs as one prepared bundle, so that the page needs no export.

    statewise compare statewise/lab/lineage.toml --data alice.txt --out studies/lab
    statewise compare passages --seeds 1 --set budget.amount=16000 --out studies/passages
    python tools/ship_lineage.py studies/lab studies/passages
"""

import argparse
import gzip
import json
from pathlib import Path
from typing import Any

from statewise.data.embedded import distance_of, passages
from statewise.disk import write
from statewise.lab.bundle import bundle
from statewise.models import LINEAGE
from statewise.tasks import load

_PLACE = Path(__file__).parents[1] / "statewise/lab/lineage.json.gz"
_EXAMPLE = (
    "`I can't explain myself, I'm afraid, sir,' said Alice, `because I'm not myself, you see. It is a very "
    "curious thing, and nobody knows the way home.' She looked at the Cat, and the Cat said, `"
)
_EACH = 6  # passages of each distance that the page shows
_ORDER = [row.name for row in LINEAGE]


def trials(study: Path) -> dict[str, Path]:
    """The run of each entry."""
    found = {path.parent.name.partition("-")[0]: path.parent for path in study.glob("trials/*/run.toml")}
    return dict(sorted(found.items(), key=lambda pair: _ORDER.index(pair[0])))


def asked(study: Path, names: list[str]) -> dict[str, Any]:
    """Passages to ask, and the share of all held-out ones that each model answers."""
    shown: dict[int, list[dict[str, Any]]] = {}
    accuracy: dict[str, dict[int, float]] = {}
    for name, folder in trials(study).items():
        run = load(folder, device="cpu")
        accuracy[f"{name} (passages)"] = run.evaluate().accuracy_at
        for row in passages(distance=run.spec.data.distance).held:
            distance = distance_of(row.text)
            some = shown.setdefault(distance, [])
            if len(some) < _EACH:
                some.append({"distance": distance, "text": row.text, "label": row.label})
    return {"passages": [one for distance in sorted(shown) for one in shown[distance]], "accuracy": accuracy}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lineage", type=Path)
    parser.add_argument("passages", type=Path)
    given = parser.parse_args()
    print(given)
