"""Make the prepared files of the lab's page, and put them into the package: what is measured, and trained models.

python tools/ship_lab.py                                # prepared.json: costs, and gradients of shipped runs
python tools/ship_lab.py studies/lab studies/passages   # lineage.json.gz: the models of two studies (docs/lab.md)
"""

import argparse
import gzip
import json
from pathlib import Path
from typing import Any

from statewise.data.embedded import distance_of, passages
from statewise.disk import write
from statewise.lab.bundle import VERSION, model_record
from statewise.lab.extra import bill, truncation
from statewise.models import LINEAGE
from statewise.tasks import LanguageModelRun, Run, load
from statewise.tasks.classification import ClassificationRun

_PLACE = Path(__file__).parents[1] / "statewise/lab"
_RUNS = ("shakespeare-elman", "shakespeare-lstm", "shakespeare-transformer", "shakespeare-ttt")
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


def lineage(models: list[Run], readers: list[Run]) -> dict[str, Any]:
    records = []
    for run in [*models, *readers]:
        records.append(model_record(run, name=run.spec.model.kind))
        print(f"{records[-1]['name']}: {records[-1]['parameters']:,} parameters", flush=True)
    for record in records[: len(models)]:
        record["example"] = _EXAMPLE
    return {"version": VERSION, "models": records, "extra": {"ask": asked(readers)}}


def measured() -> dict[str, Any]:
    found = []
    for name in _RUNS:
        run = load(name, device="cpu")
        assert isinstance(run, LanguageModelRun)
        found.append(truncation(run))
    return {"bill": bill(), "truncation": found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("studies", type=Path, nargs="*", help="that of lineage.toml, and passages; default: measure")
    parser.add_argument("--out", type=Path, default=_PLACE, metavar="DIR", help="another folder, to try it")
    given = parser.parse_args()
    if len(given.studies) not in (0, 2):
        parser.error("name two studies, or none")
    runs = [trials(study) for study in given.studies]
    for study, found in zip(given.studies, runs, strict=True):
        if not found:
            parser.error(f"{study} has no finished trial: run the study first")
    made = lineage(*runs) if runs else measured()
    text = json.dumps(made, separators=(",", ":"), ensure_ascii=not runs)
    path = given.out / ("lineage.json.gz" if runs else "prepared.json")
    write(path, gzip.compress(text.encode(), 9, mtime=0) if runs else f"{text}\n")
    print(f"{path.name}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
