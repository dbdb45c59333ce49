"""The lens `probes`: every family, trained on short rows of six memory tasks and tested on longer ones."""

import math
import os
from collections.abc import Mapping, Sequence
from statistics import NormalDist

import numpy as np
from pydantic import Field

from statewise.data import default_folder
from statewise.data.embedded import MEMORY_TASKS
from statewise.display import Progress, plain, share, size, whole
from statewise.figures import Axis, Column, Drawing, Figure, Grid, Series, table_of
from statewise.inspection.finding import Finding, Named
from statewise.inspection.lens import Lens
from statewise.inspection.probes.trial import Probed, planned, run
from statewise.inspection.subject import Subject
from statewise.specs import Spec, TrainSpec, UserError

Found = Mapping[tuple[str, str], Probed]  # by task and family

_GUESSING = 0.05  # skill below which a model is called guessing
_LEARNED = 0.9


class ProbesSettings(Spec):
    tasks: tuple[str, ...] = Field((), description=f"which questions; default: all ({', '.join(MEMORY_TASKS)})")
    families: tuple[str, ...] = Field((), description="which models; default: every one that `statewise models` lists")
    parameters: int = Field(20_000, ge=500, description="of each model; its width is chosen for that")
    steps: int = Field(600, ge=1, description="of training, for each model and question")
    batch: int = Field(64, ge=1, description="rows in each step")
    lr: float = Field(4e-3, gt=0, description="the largest rate")
    longest: int = Field(12, ge=2, description="size of the longest training rows")
    factors: tuple[int, ...] = Field((1, 2, 4, 8), description="how many times longer the test rows are")
    rows: int = Field(100, ge=1, description="test rows of each length")
    seed: int = Field(0, ge=0, description="of the rows and of every model")
    workers: int | None = Field(None, ge=1, description="processes; default: one for each core")


def apply(subject: Subject, settings: ProbesSettings, progress: Progress) -> Finding:
    if not settings.factors or min(settings.factors) < 1:
        raise UserError(f"factors = {list(settings.factors)}", fix="give whole numbers from 1, for example [1, 4]")
    factors = tuple(sorted(set(settings.factors)))
    train = TrainSpec(
        steps=settings.steps, batch=settings.batch, lr=settings.lr, warmup=min(50, settings.steps // 10), device="cpu"
    )
    trials = planned(
        tasks=settings.tasks,
        families=settings.families,
        parameters=settings.parameters,
        train=train,
        longest=settings.longest,
        factors=factors,
        rows=settings.rows,
        seed=settings.seed,
    )
    workers = settings.workers or os.cpu_count() or 1
    probed = run(trials, folder=default_folder() / "probes", workers=workers, progress=progress)
    tasks = list(dict.fromkeys(task for task, _ in trials))
    families = list(dict.fromkeys(family for _, family in trials))
    far = settings.longest * factors[-1]
    figures: list[Drawing] = [
        _map(probed, tasks, families, settings.longest, factors),
        _by_state(probed, tasks, families, far),
    ]
    figures += [_by_distance(probed, task, families, settings.longest) for task in tasks]
    return Finding(
        "probes",
        "Memory probes",
        f"{len(families)} families, {len(tasks)} questions",
        tuple(_sentences(probed, tasks, families, settings.longest, far)),
        tuple(figures),
        (_table(probed, settings.longest * factors[0], far),),
        {
            "chance": {task: MEMORY_TASKS[task].chance for task in tasks},
            "trials": [
                {"task": task, "family": family, **_record(result)} for (task, family), result in probed.items()
            ],
        },
        (
            f"one seed, {settings.steps} steps: a model at chance has not learned the task within this budget, which "
            "does not show that it cannot",
        ),
    )


def _record(probed: Probed) -> dict[str, object]:
    return {
        "accuracy": {length: probed.accuracy(length) for length in probed.by_size},
        "by_distance": {distance: right / asked for distance, (right, asked) in probed.by_distance.items()},
        "state_bytes": dict(probed.state_bytes),
        "parameters": probed.parameters,
        "loss": probed.loss,
    }


def skill(accuracy: float, chance: float) -> float:
    """0 for guessing, 1 for always right: comparable between tasks."""
    return (accuracy - chance) / (1 - chance)


def _mean_skill(probed: Found, tasks: Sequence[str], family: str, length: int) -> float:
    return float(np.mean([skill(probed[t, family].accuracy(length), MEMORY_TASKS[t].chance) for t in tasks]))


def _sentences(probed: Found, tasks: Sequence[str], families: Sequence[str], near: int, far: int) -> list[str]:
    said = []
    score = {family: _mean_skill(probed, tasks, family, far) for family in families}
    best = max(score, key=lambda family: score[family])
    state = max(probed[task, best].state_bytes[far] for task in tasks)
    longer = f"On rows {far // near} times as long as those of training"
    said.append(
        f"{longer}, {best} is best: {share(score[best])} of the way from guessing to always right, "
        f"with {size(state)} of state."
        if score[best] > _GUESSING
        else f"{longer}, no family is better than guessing."
    )
    for task in tasks:
        chance = MEMORY_TASKS[task].chance
        short = [
            family
            for family in families
            if skill(probed[task, family].accuracy(min(probed[task, family].by_size)), chance) > _LEARNED
        ]
        long = [family for family in short if skill(probed[task, family].accuracy(far), chance) > _LEARNED]
        said.append(
            f"{task} ({MEMORY_TASKS[task].what}): {len(short)} of {len(families)} families learn it, "
            + (
                f"{len(long)} of them hold at {far // near} times the length: {', '.join(long)}."
                if long
                else f"none holds at {far // near} times the length."
            )
        )
    return said


def _map(probed: Found, tasks: Sequence[str], families: Sequence[str], longest: int, factors: Sequence[int]) -> Figure:
    columns = [(task, factor) for task in tasks for factor in factors]
    values = tuple(
        tuple(
            skill(probed[task, family].accuracy(longest * factor), MEMORY_TASKS[task].chance)
            for task, factor in columns
        )
        for family in families
    )
    lost = [
        (
            family,
            task,
            probed[task, family].accuracy(longest * factors[0]) - probed[task, family].accuracy(longest * factors[-1]),
        )
        for family in families
        for task in tasks
    ]
    most = max(lost, key=lambda drop: drop[2])
    return Figure(
        "probes-map",
        "Skill by task and length",
        "map",
        Axis(
            "question, and how many times longer the row", "category", categories=tuple(f"{t} ×{f}" for t, f in columns)
        ),
        Axis("", "category", categories=tuple(families)),
        (),
        "Colour: skill from guessing (0) to always right (1) on rows of that length; ×1 is the training length.",
        f"{most[0]} loses most with length, on {most[1]}: {share(most[2])} of the answers."
        if most[2] > 0
        else "No model loses accuracy with length.",
        grid=Grid(values, "skill", limits=(0.0, 1.0)),
    )


def _by_state(probed: Found, tasks: Sequence[str], families: Sequence[str], far: int) -> Figure:
    series = tuple(
        Series(
            family,
            (float(np.mean([probed[task, family].state_bytes[far] for task in tasks])),),
            (_mean_skill(probed, tasks, family, far),),
        )
        for family in families
    )
    return Figure(
        "probes-state",
        "Skill by state size",
        "points",
        Axis("bytes of state at the last answer", "log", "bytes", base=2),
        Axis("skill on the longest rows, mean over questions"),
        series,
        "Left: a small state; up: a higher skill. A growing state is measured at the end of the longest row.",
        _worth(series),
    )


def _worth(series: Sequence[Series]) -> str:
    """The best family, and the smallest state with half of its skill."""
    best = max(series, key=lambda curve: curve.y[0])
    if best.y[0] <= _GUESSING:
        return "No family is better than guessing."
    least = min((curve for curve in series if curve.y[0] >= best.y[0] / 2), key=lambda curve: curve.x[0])
    said = f"{best.name} has the highest skill: {plain(best.y[0])} with {size(best.x[0])}"
    if least is best:
        return f"{said}; no smaller state has half of it."
    return f"{said}; {least.name} has {plain(least.y[0])} with {size(least.x[0])}, the smallest state with half of it."


def _by_distance(probed: Found, task: str, families: Sequence[str], longest: int) -> Figure:
    """Answers in groups by powers of two of their distance."""
    series, last = [], {}
    for family in families:
        gathered: dict[int, tuple[int, int, int]] = {}
        for distance, (right, asked) in probed[task, family].by_distance.items():
            bucket = int(np.log2(max(distance, 1)))
            before = gathered.get(bucket, (0, 0, 0))
            gathered[bucket] = (before[0] + right, before[1] + asked, before[2] + asked * distance)
        points = sorted((far / asked, right / asked) for right, asked, far in gathered.values())
        series.append(Series(family, tuple(x for x, _ in points), tuple(y for _, y in points)))
        last[family] = gathered[max(gathered)]
    return Figure(
        f"probes-{task}",
        f"{task}: {MEMORY_TASKS[task].what}",
        "line",
        Axis("distance to the symbol that decides the answer", "log", "whole", base=2),
        Axis("right answers", limits=(0.0, 1.03)),
        tuple(series),
        f"Training rows have a size of up to {longest}; guessing is right for {share(MEMORY_TASKS[task].chance)}.",
        _furthest(last, MEMORY_TASKS[task].chance),
    )


def _furthest(last: Mapping[str, tuple[int, int, int]], chance: float) -> str:
    """The most accurate family at the greatest distance, if that is significant: right, asked, sum of distances."""
    best = max(last, key=lambda family: last[family][0] / last[family][1])
    right, asked, _ = last[best]
    said = f"{best} is the most accurate: {share(right / asked)} of {asked:,}"
    # Bonferroni: the margin of one family is divided among all.
    margin = NormalDist().inv_cdf(1 - 0.025 / len(last)) * math.sqrt(chance * (1 - chance) / asked)
    if right / asked - chance <= margin:
        return f"At the greatest distance no family is significantly better than guessing; {said}."
    return f"At the greatest distance {said}."


def _table(probed: Found, near: int, far: int) -> Named:
    table = table_of(
        probed.items(),
        (Column("task", "question", text=True), lambda item: item[0][0], None),
        (Column("family", "family", text=True), lambda item: item[0][1], None),
        (Column("parameters", "parameters"), lambda item: item[1].parameters, whole),
        (Column("near", f"right at size {near}"), lambda item: item[1].accuracy(min(item[1].by_size)), share),
        (Column("far", f"right at size {far}"), lambda item: item[1].accuracy(max(item[1].by_size)), share),
        (Column("state", "state"), lambda item: item[1].state_bytes[max(item[1].by_size)], size),
        (Column("loss", "last loss", "nats"), lambda item: item[1].loss, plain),
    )
    return Named("probes-trials", "Every trial", "Right answers on the shortest and on the longest rows.", table)


LENS = Lens(
    "probes",
    "Copy, reverse, parity, brackets, recall, induction: how far every family remembers, and in how many bytes.",
    quick=False,
    settings=ProbesSettings,
    apply=apply,
    needs_run=False,
)
