"""A study's data, opened once: what they are, and how large a model over them is, without making its weights."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean

from statewise.models import on_meta
from statewise.specs import AnyRunSpec, UserError
from statewise.tasks import Job, Opening, open_job
from statewise.training import Parallel

# What does not change what is read, nor which vocabularies and classes are learnt from it.
_NOT_DATA = {"model", "train", "seed", "reader", "forcing", "decoding"}
_BLOCK = 1 << 20
_STEPS_READ = 64  # that the tokens of a step are averaged over


@dataclass(frozen=True)
class OpenedData:
    """What runs over the same data have in common, and what each of them costs there."""

    job: Job
    fingerprint: str

    @cached_property
    def _row_tokens(self) -> float:
        """Of whole sequences, in the mean."""
        return fmean(self.job.window(step).tokens for step in range(_STEPS_READ)) / self.job.spec.train.batch

    def parameters(self, spec: AnyRunSpec) -> int:
        return self.job.for_spec(spec).num_parameters()

    def refuse_unbuildable(self, spec: AnyRunSpec) -> None:
        """What parses may still not be buildable: an odd width cannot be turned in pairs, for example."""
        with on_meta():
            self.job.for_spec(spec).build()

    def flops_per_token(self, spec: AnyRunSpec) -> float:
        """Forward, the mean over what is learned from."""
        return self.job.for_spec(spec).flops_per_token()

    def step_tokens(self, spec: AnyRunSpec) -> float:
        """That one step reads: known where windows are, else the mean over some steps."""
        if not spec.whole_sequences:
            return float(spec.train.batch * spec.train.window_tokens())
        return self._row_tokens * spec.train.batch

    def state_bytes(self, spec: AnyRunSpec, context: int) -> int | None:
        """Of one row after `context` tokens; None where a whole input is read at once."""
        return self.job.for_spec(spec).state_bytes(context)


class Opener:
    """Opens what runs read; runs that read the same are served by one opening."""

    def __init__(self) -> None:
        self._opened: dict[str, OpenedData] = {}

    def __call__(self, spec: AnyRunSpec) -> OpenedData:
        key = json.dumps([spec.layout, spec.model_dump(mode="json", exclude=_NOT_DATA)], sort_keys=True)
        if key not in self._opened:
            names = list(_named(spec))
            if "-" in names:
                raise UserError("a study cannot learn from standard input: it is read many times", fix="name files")
            job = open_job(spec, Opening(Path("study"), Parallel()))
            self._opened[key] = OpenedData(job, _fingerprint(job, names))
        return self._opened[key]


def _named(spec: AnyRunSpec) -> Iterator[str]:
    """Whatever of the data's settings names something."""
    for value in spec.data.model_dump().values():
        for item in value if isinstance(value, tuple | list) else (value,):
            if isinstance(item, str):
                yield item


def _fingerprint(job: Job, names: list[str]) -> str:
    """The job's facts about its training data, and the contents of all named files, regardless of their names."""
    facts = {name: value for told in job.facts().values() for name, value in told.items() if name != "name"}
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    for name in names:
        path = Path(name)
        inside = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
        for file in (file for file in inside if file.is_file()):
            digest.update(file.name.encode("utf-8", "surrogateescape"))
            with file.open("rb") as stream:
                while block := stream.read(_BLOCK):
                    digest.update(block)
    return digest.hexdigest()
