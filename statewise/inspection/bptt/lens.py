"""The lens `bptt`: bias, variance, memory and time of each truncation policy, on one model, data and seeds."""

import copy
import math
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
from pydantic import Field
from torch import Tensor

from statewise.display import Progress
from statewise.inspection.bptt import picture
from statewise.inspection.bptt.estimate import (
    Estimate,
    Gradient,
    Measured,
    Trained,
    cost,
    estimate,
    gradient,
    readers_of,
    row_gradient,
)
from statewise.inspection.finding import Finding
from statewise.inspection.lens import Lens, choose_rows
from statewise.inspection.subject import Subject
from statewise.specs import (
    FixedTruncation,
    FullTruncation,
    RandomTruncation,
    Spec,
    TruncationSpec,
    UnbiasedTruncation,
    UserError,
)
from statewise.tasks import LanguageModelRun, Specimens, TextSpecimens, load, train
from statewise.training import Silent

_LENGTH = 16
_LONGEST = 4096  # places of a row: its graph is held at once


class BPTTSettings(Spec):
    window: int = Field(96, ge=2, description="of a text: tokens that the full gradient flows through")
    length: int | None = Field(
        None,
        ge=1,
        description=f"tokens between two cuts (random: in the mean); default: {_LENGTH}, of short rows a quarter",
    )
    keep: float = Field(0.5, gt=0, le=1, description="unbiased: the probability that a gradient passes a cut")
    rows: int = Field(4, ge=1, description="windows or rows in a batch")
    batches: int = Field(4, ge=2, description="batches that intervals are made of")
    draws: int = Field(32, ge=2, description="random cuts of each batch; a power of two")
    train: bool = Field(False, description="also train with each policy and compare the final loss")
    steps: int = Field(200, ge=1, description="train: steps of each training")
    seeds: int = Field(2, ge=1, description="train: trainings of each policy")


def apply(subject: Subject, settings: BPTTSettings, progress: Progress) -> Finding:
    assert subject.model is not None
    assert subject.specimens is not None
    if not any(p.requires_grad for p in subject.model.parameters()):
        raise UserError(f"{subject.name} does not learn by gradients", fix="name a run that was trained by them")
    if settings.draws & (settings.draws - 1):
        lower = 2 ** int(math.log2(settings.draws))
        raise UserError(f"draws = {settings.draws} is not a power of two", fix=f"try {lower} or {2 * lower}")
    text = isinstance(subject.specimens, TextSpecimens)
    if settings.train and not isinstance(subject.run, LanguageModelRun):
        raise UserError(
            "train=true trains the recipe of a run again with each truncation, and only language models have one",
            fix="leave train out" if not text else "name a run",
        )
    cut = settings.length or _usual_length(subject.specimens, settings)
    batches = (_text_batches if text else _row_batches)(subject, settings, cut)
    policies: dict[str, TruncationSpec] = {
        "full": FullTruncation(),
        "fixed": FixedTruncation(length=cut),
        "random": RandomTruncation(length=cut),
        "unbiased": UnbiasedTruncation(length=cut, keep=settings.keep),
    }
    by_policy = _measure(batches, policies, settings.draws, progress)
    if settings.train:
        assert isinstance(subject.run, LanguageModelRun)
        trained = train_each(
            subject.run, policies, steps=settings.steps, window=batches.places, seeds=settings.seeds, progress=progress
        )
        by_policy = {name: measured._replace(trained=trained[name]) for name, measured in by_policy.items()}
    return Finding(
        "bptt",
        "The BPTT laboratory",
        subject.name,
        tuple(picture.sentences(by_policy, cut, subject.specimens.words.place, whole_rows=not text)),
        tuple(picture.figures(by_policy)),
        (picture.table(by_policy, "window" if text else "row"),),
        _data(by_policy, settings, cut, batches.places),
    )


class _Batches(NamedTuple):
    """What gradients are taken of."""

    exact: list[Gradient]  # in double precision: rounding is no bias
    trained: Gradient  # of the first, as in training: for time and memory
    known: list[Tensor]  # that takes memory anyway
    places: int  # of a window, or of the longest row


def _usual_length(specimens: Specimens, settings: BPTTSettings) -> int:
    """A quarter of what the full gradient flows through, at most."""
    if isinstance(specimens, TextSpecimens):
        return _LENGTH
    longest = max(specimens.length(number) for number in range(len(specimens)))
    return min(_LENGTH, max(2, longest // 4))


def _text_batches(subject: Subject, settings: BPTTSettings, cut: int) -> _Batches:
    text, machine = subject.text_rows, subject.machine
    length = min(settings.window, len(text.tokens_T) - 1, text.window or settings.window)
    if length <= cut:
        raise UserError(
            f"a window of {length} tokens is not longer than length={cut}: there is nothing to cut",
            fix="give a longer text, a longer window or a smaller length",
        )
    window_NT = text.window_tokens(length + 1, settings.rows * settings.batches).to(machine.like.device)
    if len(window_NT) < 2:
        raise UserError(f"{text.source} has room for one window of {length} tokens", fix="give a longer text")
    pairs = [(batch_BT[:, :-1], batch_BT[:, 1:]) for batch_BT in window_NT.chunk(min(settings.batches, len(window_NT)))]
    exact = copy.deepcopy(machine).double().eval()
    return _Batches(
        [partial(gradient, exact, *pair) for pair in pairs],
        partial(gradient, machine, *pairs[0]),
        [*machine.parameters(), *pairs[0]],
        length,
    )


def _row_batches(subject: Subject, settings: BPTTSettings, cut: int) -> _Batches:
    specimens = subject.specimens
    assert specimens is not None
    if not readers_of(specimens.at(0)):
        raise UserError(
            f"{subject.name} carries no state along its rows, so there is nothing to truncate",
            fix="name a run whose model.kind is recurrent (lstm, gru, …)",
        )
    chosen = choose_rows(specimens, settings.rows * settings.batches, shortest=cut + 1, longest=_LONGEST)
    parts = [part.tolist() for part in np.array_split(chosen, min(settings.batches, len(chosen)))]
    precise = specimens.precise()
    precise.model.eval()
    first = [specimens.at(number) for number in parts[0]]
    return _Batches(
        [partial(row_gradient, precise.model, [precise.at(number) for number in part]) for part in parts],
        partial(row_gradient, specimens.model, first),
        [*specimens.model.parameters(), *(row.x_TE for row in first)],
        max(specimens.length(number) for number in chosen),
    )


def _measure(
    batches: _Batches, policies: Mapping[str, TruncationSpec], draws: int, progress: Progress
) -> dict[str, Measured]:
    full = [exact(FullTruncation(), key=(0,)) for exact in batches.exact]
    work = [(name, number) for name in policies for number in range(len(full))]
    estimates: dict[str, list[Estimate]] = {name: [] for name in policies}
    for name, number in progress.over(work, "gradients by policy and batch"):
        policy = policies[name]
        draws_of_it = draws if isinstance(policy, RandomTruncation | UnbiasedTruncation) else 1
        estimates[name].append(
            estimate(batches.exact[number], policy, draws=draws_of_it, seed=number, full_P=full[number])
        )
    by_policy = {}
    for name, policy in policies.items():
        measured = cost(partial(batches.trained, policy, key=(0, 1)), known=batches.known)
        random = isinstance(policy, RandomTruncation | UnbiasedTruncation)
        by_policy[name] = Measured(tuple(estimates[name]), measured, random)
    return by_policy


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


def _data(by_policy: Mapping[str, Measured], settings: BPTTSettings, cut: int, places: int) -> dict[str, Any]:
    fields = ("cosine", "norm", "projection", "bias", "spread", "chance")
    policies = {}
    for name, measured in by_policy.items():
        record: dict[str, Any] = {
            field: {"mean": measured.mean(field), "half": measured.half(field)} for field in fields
        }
        record["off_by"] = [fmean(values) for values in zip(*(each.off_by for each in measured.estimates))]
        record |= {"seconds": measured.cost.seconds, "held_bytes": measured.cost.held_bytes}
        record["course"] = None if measured.trained is None else measured.trained._asdict()
        policies[name] = record
    return {"window": places, "length": cut, "keep": settings.keep, "policies": policies}


LENS = Lens(
    "bptt",
    "Truncation: bias, variance, memory and time of four policies against full BPTT.",
    quick=False,
    settings=BPTTSettings,
    apply=apply,
)
