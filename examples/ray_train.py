"""The loop of `statewise train` in processes that Ray Train starts, in place of torchrun.

    pip install "ray[train]" && python examples/ray_train.py

Every worker calls `statewise.train` with the same arguments; it joins the process group that Ray Train has made. All of
them see the folder and the data under the same name. `FailureConfig(max_failures=3)` in a `RunConfig` starts lost
workers again: `resume` then continues from the newest checkpoint.
"""

import json
import sys
from pathlib import Path
from typing import Any

from ray.train import ScalingConfig
from ray.train.torch import TorchTrainer

import statewise as sw


def worker(what: dict[str, Any]) -> None:
    sw.train("lstm", settings=what["settings"], out=what["out"], resume=(Path(what["out"]) / "checkpoints").is_dir())


def main(out: str = "runs/ray", workers: int = 2) -> None:
    settings = {"train.steps": 20, "train.shard": "always", "model.width": 32, "train.evaluate_tokens": 2000}
    what = {"settings": settings, "out": str(Path(out).absolute())}
    TorchTrainer(worker, train_loop_config=what, scaling_config=ScalingConfig(num_workers=workers)).fit()
    steps = [json.loads(line) for line in Path(out, "metrics.jsonl").read_text().splitlines()]
    print(f"{len(steps)} records, the last of step {steps[-1]['step']}")


if __name__ == "__main__":
    main(*sys.argv[1:])
