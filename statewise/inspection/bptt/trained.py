"""What a truncation does to a whole training: the run's own recipe again, cut in each way, on the same seeds."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from statewise.inspection.progress import Progress
from statewise.specs import TruncationSpec
from statewise.tasks import LanguageModelRun, load, train
from statewise.training import Silent


class Course(NamedTuple):
    nats: tuple[float, ...]  # on held-out text, by seed
    seconds: float  # of training, the mean over seeds


def courses(
    run: LanguageModelRun,
    policies: Mapping[str, TruncationSpec],
    *,
    steps: int,
    window: int,
    seeds: int,
    progress: Progress,
) -> dict[str, Course]:
    """Folders are made in a temporary place and thrown away."""
    trials = [(name, seed) for name in policies for seed in range(seeds)]
    nats: dict[str, list[float]] = {name: [] for name in policies}
    seconds = dict.fromkeys(policies, 0.0)
    with tempfile.TemporaryDirectory() as place:
        for name, seed in progress.over(trials, "training with each truncation"):
            spec = run.spec.train.model_copy(
                update={
                    "truncation": policies[name],
                    "window": window,
                    "steps": steps,
                    "seconds": None,
                    "warmup": min(run.spec.train.warmup, steps // 4),
                    "evaluate_every": steps,
                    "save_every": steps,
                }
            )
            recipe = run.spec.model_copy(update={"train": spec, "seed": seed})
            trained = train(recipe, out=Path(place) / f"{name}-{seed}", display=Silent())
            again = load(trained.path, device=str(run.device), mixer=trained.mixers)
            assert isinstance(again, LanguageModelRun)
            nats[name].append(again.evaluate().nats_per_token)
            seconds[name] += trained.outcome.seconds / seeds
    return {name: Course(tuple(nats[name]), seconds[name]) for name in policies}
