"""Put a trained run into the package, without the text it learned from and without paths of this machine.

    statewise train shakespeare-lstm --data input.txt --out runs/shakespeare-lstm
    python tools/ship_run.py runs/shakespeare-lstm [--name shakespeare-lstm]

The weights are kept byte for byte; `run.toml` names the text by its file name alone, and the manifest is written anew.
"""

import argparse
import json
import shutil
from functools import partial
from pathlib import Path

from statewise.specs.toml import dumps
from statewise.tasks import load
from statewise.training.checkpoint import write_files

_TRAINED = Path(__file__).parents[1] / "statewise" / "trained"
_FILES = ("tokenizer.json", "unigram.safetensors", "model.safetensors")
_FACTS = ("statewise", "python", "torch", "device")  # of the machine; the corpus is added by name and sha256


def ship(folder: Path, name: str) -> Path:
    run = load(folder, device="cpu")
    spec = run.spec.model_dump(mode="json")
    spec["data"]["text"] = [Path(path).name for path in spec["data"]["text"]]
    target = _TRAINED / name
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    write_files(
        target,
        {
            "run.toml": dumps(spec),
            **{name: partial(shutil.copyfile, folder / name) for name in _FILES},
        },
    )
    facts = json.loads((folder / "environment.json").read_text(encoding="utf-8"))
    corpus = {**facts["corpus"], "name": Path(facts["corpus"]["name"]).name}
    kept = {**{fact: facts[fact] for fact in _FACTS}, "corpus": corpus}
    (target / "environment.json").write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    shutil.copy(folder / "metrics.jsonl", target / "metrics.jsonl")
    load(target, device="cpu")
    return target


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--name", help="default: the folder's name")
    asked = parser.parse_args()
    target = ship(asked.run, asked.name or asked.run.name)
    size = sum(path.stat().st_size for path in target.iterdir())
    print(f"{target}: {size:,} bytes")


if __name__ == "__main__":
    main()
