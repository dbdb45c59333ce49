"""Put the lab's lineage into the package: trained runs as one prepared bundle, so that its page needs no export.

statewise compare statewise/lab/lineage.toml --data alice.txt --out studies/lab
statewise compare passages --seeds 1 --set budget.amount=16000 --set budget.tolerance=0.1 --out studies/passages
python tools/ship_lineage.py studies/lab studies/passages
"""

import argparse
import gzip
import json
from pathlib import Path
from typing import Any

from statewise.data.embedded import distance_of, passages
from statewise.disk import write
from statewise.lab.bundle import VERSION, model_record
from statewise.models import LINEAGE
from statewise.tasks import Run, load
from statewise.tasks.classification import ClassificationRun

_PLACE = Path(__file__).parents[1] / "statewise/lab/lineage.json.gz"
_EXAMPLE = (
    "`I can't explain myself, I'm afraid, sir,' said Alice, `because I'm not myself, you see. It is a very curious "
    "thing, and nobody knows the way home.' She looked at the Cat, and the Cat said, `"
)
_EACH = 6  # passages of each distance that the page shows
_ORDER = [row.name for row in LINEAGE]


def trials(study: Path) -> list[Run]:
    """The newest run of each entry, in the order of the lineage."""
    finished = sorted(study.glob("trials/*/result.json"), key=lambda path: path.stat().st_mtime)
    runs = {run.spec.model.kind: run for path in finished if (run := load(path.parent / "run", device="cpu"))}
    return sorted(runs.values(), key=lambda run: _ORDER.index(run.spec.model.kind))


def asked(runs: list[Run]) -> dict[str, Any]:
    """Passages to ask, and the share of all held-out ones that each model answers."""
    shown: dict[int, list[dict[str, Any]]] = {}
    accuracy: dict[str, dict[int, float]] = {}
    for run in runs:
        assert isinstance(run, ClassificationRun)
        accuracy[run.spec.model.kind] = run.evaluate().accuracy_at
    for row in passages(distance=runs[0].spec.data.distance).held:
        some = shown.setdefault(distance_of(row.text), [])
        if len(some) < _EACH:
            some.append({"distance": distance_of(row.text), "text": row.text, "label": row.label})
    return {"passages": [one for distance in sorted(shown) for one in shown[distance]], "accuracy": accuracy}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lineage", type=Path, help="the study of lineage.toml")
    parser.add_argument("passages", type=Path, help="the study passages")
    parser.add_argument("--out", type=Path, default=_PLACE, metavar="FILE", help="another place, to try it")
    given = parser.parse_args()
    models, readers = trials(given.lineage), trials(given.passages)
    records = []
    for run in [*models, *readers]:
        records.append(model_record(run, name=run.spec.model.kind))
        print(f"{records[-1]['name']}: {records[-1]['parameters']:,} parameters", flush=True)
    for record in records[: len(models)]:
        record["example"] = _EXAMPLE
    bundle = {"version": VERSION, "models": records, "extra": {"ask": asked(readers)}}
    text = json.dumps(bundle, separators=(",", ":"), ensure_ascii=False)
    write(given.out, gzip.compress(text.encode(), 9, mtime=0))
    print(f"{given.out.name}: {len(records)} models, {given.out.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
