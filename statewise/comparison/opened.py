"""A study's data, opened once: what they are, and how large a model over them is, without making its weights."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn

from statewise.models import build
from statewise.models.classifier import build_classifier
from statewise.models.tree_classifier import build_node_classifier
from statewise.specs import (
    AnyRunSpec,
    ClassificationSpec,
    ForecastingSpec,
    LanguageModelSpec,
    TaggingSpec,
    TranslationSpec,
    TreeSpec,
    UserError,
)
from statewise.specs.grid import GridSpec
from statewise.tasks.classification import ClassificationJob
from statewise.tasks.dispatch import open_job
from statewise.tasks.forecasting import ForecastingJob
from statewise.tasks.forecasting.job import build_of as build_forecast
from statewise.tasks.job import Job, Opening
from statewise.tasks.language_model import LanguageModelJob
from statewise.tasks.tagging import TaggingJob
from statewise.tasks.tagging.job import build as build_tags
from statewise.tasks.translation import TranslationJob
from statewise.tasks.translation.make import make_translator
from statewise.tasks.tree import TreeJob
from statewise.training import Parallel

# What does not change what is read, nor which vocabularies and classes are learnt from it.
_NOT_DATA = {"model", "train", "seed", "reader", "forcing", "decoding"}
_BLOCK = 1 << 20


class OpenedData(NamedTuple):
    job: Job
    fingerprint: str

    def parameters(self, spec: AnyRunSpec) -> int:
        """By formula for a language model, else by building one on a device that keeps shapes alone."""
        if isinstance(spec, LanguageModelSpec):
            return spec.model.num_parameters(self._vocab())
        return self.built_parameters(spec)

    def built_parameters(self, spec: AnyRunSpec) -> int:
        """Of a model that was really built, but for its numbers. Sizes that do not fit are refused."""
        with torch.device("meta"):
            return sum(p.numel() for p in self._build(spec).parameters())

    def _build(self, spec: AnyRunSpec) -> nn.Module:
        """The model of a run over what the job learnt: its vocabularies, classes or channels."""
        match spec, self.job:
            case LanguageModelSpec(), LanguageModelJob() as job:
                return build(spec.model, vocab=job.corpus.tokenizer.vocab)
            case ClassificationSpec(), ClassificationJob() as job:
                classes = len(job.classes)
                return build_classifier(spec.model, spec.reader, num_classes=classes, **job.encoding.model_input())
            case TranslationSpec(), TranslationJob() as job:
                return make_translator(spec, job.languages, torch.device("meta")).build()
            case TaggingSpec(), TaggingJob() as job:
                return build_tags(spec, job.known)
            case TreeSpec(), TreeJob() as job:
                classes, vocab = len(job.classes), job.tokenizer.vocab
                return build_node_classifier(spec.model, spec.reader, num_classes=classes, vocab=vocab)
            case ForecastingSpec(), ForecastingJob() as job:
                return build_forecast(spec, job.known)
            case _:
                raise AssertionError(f"a {spec.task} run was given other data")

    def flops_per_token(self, spec: AnyRunSpec) -> float | None:
        """Forward, the mean over a window of training; None where no formula is known."""
        if not isinstance(spec, LanguageModelSpec):
            return None
        first, last = (spec.model.forward_flops(self._vocab(), at) for at in (0, spec.train.window_tokens() - 1))
        return (first + last) / 2  # it is linear in what was read before

    def state_bytes(self, spec: AnyRunSpec, context: int) -> int | None:
        """Of one row after `context` tokens; None where a whole input is read at once, or no formula is known."""
        match spec:
            case LanguageModelSpec():
                return spec.model.state_bytes(context)
            case ClassificationSpec(model=GridSpec()):
                return None
            case ClassificationSpec() if spec.data.kind == "text" and not spec.reader.bidirectional:
                assert not isinstance(spec.model, GridSpec)
                return spec.model.state_bytes(context)
            case _:
                return None

    def _vocab(self) -> int:
        assert isinstance(self.job, LanguageModelJob)
        return self.job.corpus.tokenizer.vocab


class Opener:
    """Opens what runs read; runs that read the same are served by one opening."""

    def __init__(self) -> None:
        self._opened: dict[str, OpenedData] = {}

    def __call__(self, spec: AnyRunSpec) -> OpenedData:
        grid = isinstance(spec.model, GridSpec)  # reads the same arrays in another way
        key = json.dumps([grid, spec.model_dump(mode="json", exclude=_NOT_DATA)], sort_keys=True)
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
        for one in value if isinstance(value, tuple | list) else (value,):
            if isinstance(one, str):
                yield one


def _fingerprint(job: Job, names: list[str]) -> str:
    """What the job says of its training data, and every byte of every file that is named."""
    digest = hashlib.sha256(json.dumps(job.facts(), sort_keys=True).encode())
    for name in names:
        path = Path(name)
        inside = sorted(one for one in path.rglob("*") if one.is_file()) if path.is_dir() else [path]
        for file in (one for one in inside if one.is_file()):
            digest.update(file.name.encode("utf-8", "surrogateescape"))
            with file.open("rb") as stream:
                while block := stream.read(_BLOCK):
                    digest.update(block)
    return digest.hexdigest()
