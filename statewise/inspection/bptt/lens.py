"""The lens `bptt`: bias, variance, memory and time of each truncation policy, on one model, text and seeds."""

import copy
import math
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from pydantic import Field
from torch import Tensor

from statewise.core import Machine
from statewise.display import Progress
from statewise.inspection.bptt import picture
from statewise.inspection.bptt.estimate import Estimate, Measured, Trained, cost, estimate, gradient
from statewise.inspection.finding import Finding
from statewise.inspection.lens import Lens
from statewise.inspection.subject import Subject
from statewise.inspection.text import windows
from statewise.specs import (
    FixedTruncation,
    FullTruncation,
    RandomTruncation,
    Spec,
    TruncationSpec,
    UnbiasedTruncation,
    UserError,
)
from statewise.tasks import LanguageModelRun, load, train
from statewise.training import Silent


class BPTTSettings(Spec):
    window: int = Field(96, ge=2, description="tokens that the full gradient flows through")
    length: int = Field(16, ge=1, description="tokens between two cuts (random: in the mean)")
    keep: float = Field(0.5, gt=0, le=1, description="unbiased: the probability that a gradient passes a cut")
    rows: int = Field(4, ge=1, description="windows in a batch")
    batches: int = Field(4, ge=2, description="batches that intervals are made of")
    draws: int = Field(32, ge=2, description="random cuts of each batch; a power of two")
    train: bool = Field(False, description="also train with each policy and compare the final loss")
    steps: int = Field(200, ge=1, description="train: steps of each training")
    seeds: int = Field(2, ge=1, description="train: trainings of each policy")


def apply(subject: Subject, settings: BPTTSettings, progress: Progress) -> Finding:
    text = subject.text_rows
    if not any(p.requires_grad for p in subject.machine.parameters()):
        raise UserError(f"{subject.name} does not learn by gradients", fix="name a run that was trained by them")
    if settings.draws & (settings.draws - 1):
        lower = 2 ** int(math.log2(settings.draws))
        raise UserError(f"draws = {settings.draws} is not a power of two", fix=f"try {lower} or {2 * lower}")
    length = min(settings.window, len(text.tokens_T) - 1, text.window or settings.window)
    if length <= settings.length:
        raise UserError(
            f"a window of {length} tokens is not longer than length={settings.length}: there is nothing to cut",
            fix="give a longer text, a longer window or a smaller length",
        )
    wanted = settings.rows * settings.batches
    window_NT = windows(text, length + 1, wanted).to(subject.machine.like.device)
    if len(window_NT) < 2:
        raise UserError(f"{text.source} has room for one window of {length} tokens", fix="give a longer text")
    batches = list(window_NT.chunk(min(settings.batches, len(window_NT))))
    policies: dict[str, TruncationSpec] = {
        "full": FullTruncation(),
        "fixed": FixedTruncation(length=settings.length),
        "random": RandomTruncation(length=settings.length),
        "unbiased": UnbiasedTruncation(length=settings.length, keep=settings.keep),
    }
    found = _measure(subject.machine, batches, policies, settings.draws, progress)
    if settings.train:
        if not isinstance(subject.run, LanguageModelRun):
            raise UserError("train=true needs a trained folder, whose recipe is run again", fix="name a run")
        trained = train_each(
            subject.run, policies, steps=settings.steps, window=length, seeds=settings.seeds, progress=progress
        )
        found = {name: one._replace(trained=trained[name]) for name, one in found.items()}
    return Finding(
        "bptt",
        "The BPTT laboratory",
        subject.name,
        tuple(picture.sentences(found, settings.length)),
        tuple(picture.figures(found)),
        (picture.table(found),),
        _data(found, settings, length),
    )


def _measure(
    machine: Machine[Any],
    batches: list[Tensor],
    policies: Mapping[str, TruncationSpec],
    draws: int,
    progress: Progress,
) -> dict[str, Measured]:
    # Bias and spread in double precision, to exclude rounding errors; cost as in training.
    exact = copy.deepcopy(machine).double().eval()
    full = [gradient(exact, one_BT[:, :-1], one_BT[:, 1:], FullTruncation(), key=(0,)) for one_BT in batches]
    work = [(name, number) for name in policies for number in range(len(batches))]
    estimates: dict[str, list[Estimate]] = {name: [] for name in policies}
    for name, number in progress.over(work, "gradients by policy and batch"):
        some_BT, policy = batches[number], policies[name]
        random = isinstance(policy, RandomTruncation | UnbiasedTruncation)
        estimates[name].append(
            estimate(
                exact,
                some_BT[:, :-1],
                some_BT[:, 1:],
                policy,
                draws=draws if random else 1,
                seed=number,
                full_P=full[number],
            )
        )
    inputs_BT, targets_BT = batches[0][:, :-1], batches[0][:, 1:]
    found = {}
    for name, policy in policies.items():
        measured = cost(
            partial(gradient, machine, inputs_BT, targets_BT, policy, key=(0, 1)),
            known=[*machine.parameters(), inputs_BT, targets_BT],
        )
        random = isinstance(policy, RandomTruncation | UnbiasedTruncation)
        found[name] = Measured(tuple(estimates[name]), measured, random)
    return found


def train_each(
    run: LanguageModelRun,
    policies: Mapping[str, TruncationSpec],
    *,
    steps: int,
    window: int,
    seeds: int,
    progress: Progress,
) -> dict[str, Trained]:
    """The run's own recipe again with each policy, on the same seeds, in a temporary folder."""
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
            again = train(recipe, out=Path(place) / f"{name}-{seed}", display=Silent())
            opened = load(again.path, device=str(run.device), mixer=again.mixers)
            assert isinstance(opened, LanguageModelRun)
            nats[name].append(opened.evaluate().nats_per_token)
            seconds[name] += again.outcome.seconds / seeds
    return {name: Trained(tuple(nats[name]), seconds[name]) for name in policies}


def _data(found: Mapping[str, Measured], settings: BPTTSettings, length: int) -> dict[str, Any]:
    fields = ("cosine", "norm", "projection", "bias", "spread", "chance")
    policies = {}
    for name, one in found.items():
        record: dict[str, Any] = {field: {"mean": one.mean(field), "half": one.half(field)} for field in fields}
        record["off_by"] = [fmean(values) for values in zip(*(each.off_by for each in one.estimates))]
        record |= {"seconds": one.cost.seconds, "held_bytes": one.cost.held_bytes}
        record["course"] = None if one.trained is None else one.trained._asdict()
        policies[name] = record
    return {"window": length, "length": settings.length, "keep": settings.keep, "policies": policies}


LENS = Lens(
    "bptt",
    "Truncation: bias, variance, memory and time of four policies against full BPTT.",
    ("language_model",),
    quick=False,
    settings=BPTTSettings,
    apply=apply,
    why="it reads whole rows or windows, and nothing is truncated on the way",
)
