"""Training that begins with the weights of another run."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn

from statewise.specs import LanguageModelSpec, OwnMixer, UserError, option
from statewise.tasks.folder import NEEDS, judged_weights, read_spec
from statewise.tasks.job import Job
from statewise.training import find_published, load_weights

_RATE = 1e-4  # trained weights are lost at the rate of a first training


def fine_tuning(folder: Path, mixers: Sequence[OwnMixer]) -> dict[str, Any]:
    """A new run that begins with the model, the tokenizer and the weights of `folder`."""
    verified = find_published(folder, needs=NEEDS).path
    spec = read_spec(verified, mixers=mixers)
    if not isinstance(spec, LanguageModelSpec) or spec.learns != "gradient":
        raise UserError(
            f"{str(folder)!r} cannot be trained on other data: it is no language model with weights",
            fix=f"to continue it on its own data: {option('resume', True)} {option('out', str(folder))}",
        )
    tokenizer = str((verified / "tokenizer.json").absolute())
    return {
        "task": spec.task,
        "model": spec.model.model_dump(),
        "data": {"tokenizer": tokenizer, "direction": spec.data.direction, "begin": spec.data.begin},
        "train": {"start": str(folder.absolute()), "lr": _RATE},
    }


def first_model(job: Job) -> nn.Module:
    """The model before its first step: new weights, or those of `train.start`."""
    model = job.build()
    start = job.spec.train.start
    if start is not None:
        load_weights(model, judged_weights(find_published(Path(start), needs=NEEDS).path))
    return model
