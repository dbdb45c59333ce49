"""Memory probes: one model on one task, trained on short rows and tested on longer ones; and all trials in parallel.

B batch, T time steps, V vocabulary.
"""

import hashlib
import json
import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from statewise.data import open_entry
from statewise.data.embedded import MEMORY_TASKS, MemoryRow, MemoryTask
from statewise.display import Progress
from statewise.models import LINEAGE, CountingMachine, TokenMachine, build, context_bytes, num_parameters
from statewise.specs import (
    LanguageModelSpec,
    ModelSpec,
    TrainSpec,
    UserError,
    lens_setting,
    load_recipe,
    nearest,
    parse_spec,
)
from statewise.training import Plateau, learning_rate, make_optimizer

_VERSION = 1  # of the trials: results of another version are not reused
_POOL = 1 << 15  # rows that training draws from, at most
_SYMBOLS_AT_ONCE = 1 << 16  # read at a time when asking
_NOT_ASKED = -100
_WIDEST = 8192

Say = Callable[[int, int], None]  # steps done, of how many


class Trial(NamedTuple):
    task: str
    model: ModelSpec
    train: TrainSpec
    longest: int  # size of the longest rows that are learnt from
    sizes: tuple[int, ...]  # of the rows that are asked about
    rows: int  # asked about, of each size
    seed: int

    def key(self) -> str:
        """The same for the same work."""
        content = {
            **self._asdict(),
            "model": self.model.model_dump(mode="json"),
            "train": self.train.model_dump(mode="json"),
            "version": [_VERSION, torch.__version__],
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:20]


class Probed(NamedTuple):
    """Right answers and all answers, by the size of the row and by the distance of the answer."""

    by_size: dict[int, tuple[int, int]]
    by_distance: dict[int, tuple[int, int]]
    state_bytes: dict[int, int]  # after reading a row of this size, to where the last answer is asked for
    parameters: int
    loss: float  # of the last steps of training, nats an answer

    def accuracy(self, size: int) -> float:
        right, asked = self.by_size[size]
        return right / asked


def fitted(spec: ModelSpec, *, vocab: int, parameters: int) -> ModelSpec:
    """The same model at the width whose number of parameters is nearest. A model without a width stays as it is."""
    if "width" not in type(spec).model_fields:
        return spec
    heads = getattr(spec, "heads", None) or 1
    widths = range(heads, _WIDEST, heads)

    def sized(some: Sequence[int]) -> tuple[float, ModelSpec]:
        """Parameters and model at the first of some widths that is valid: an odd head cannot be rotated."""
        for width in some:
            with suppress(ValueError):
                model = type(spec).model_validate({**spec.model_dump(), "width": width})
                return num_parameters(partial(build, model, vocab=vocab)), model
        return math.inf, spec

    above = bisect_right(widths, float(parameters), key=lambda width: sized(range(width, _WIDEST, heads))[0])
    near = (sized(widths[:above][::-1]), sized(widths[above:]))
    return min(near, key=lambda pair: abs(pair[0] - parameters))[1]


def as_tokens(rows: Sequence[MemoryRow], task: MemoryTask) -> tuple[Tensor, Tensor]:
    """Tokens `[B, T]`, and for each place the answer that is asked for there, or that none is."""
    number = {symbol: i for i, symbol in enumerate(task.symbols)}
    longest = max(len(row.symbols) for row in rows)
    tokens_BT = torch.zeros(len(rows), longest, dtype=torch.int64)
    answers_BT = torch.full((len(rows), longest), _NOT_ASKED)
    for tokens_T, answers_T, row in zip(tokens_BT, answers_BT, rows):
        tokens_T[: len(row.symbols)] = torch.tensor([number[symbol] for symbol in row.symbols])
        for place in row.places:
            answers_T[place - 1] = tokens_T[place]
    return tokens_BT[:, :-1], answers_BT[:, :-1]


def learn(model: TokenMachine[Any], trial: Trial, *, say: Say | None = None) -> float:
    """Train on rows of all sizes up to `longest`; only answers count. Returns the loss of the last steps."""
    task, spec = MEMORY_TASKS[trial.task], trial.train
    rows = task.rows(
        shortest=task.least, longest=trial.longest, count=max(1, min(_POOL, spec.steps * spec.batch)), seed=trial.seed
    )
    if isinstance(model, CountingMachine):
        number = {symbol: i for i, symbol in enumerate(task.symbols)}
        model.count(np.array([number[symbol] for row in rows for symbol in row.symbols]))
        return _mean_loss(model, *as_tokens(rows[:256], task))
    tokens_NT, answers_NT = as_tokens(rows, task)
    # What lies behind the last answer of a batch need not be read.
    end_N = ((answers_NT != _NOT_ASKED) * torch.arange(1, tokens_NT.shape[1] + 1)).amax(1)
    optimizer = make_optimizer(model, spec)
    generator = torch.Generator().manual_seed(trial.seed)
    model.train()
    recent: list[float] = []
    for step in range(1, spec.steps + 1):
        chosen_B = torch.randint(len(rows), (spec.batch,), generator=generator)
        time = int(end_N[chosen_B].max())
        logits_BTV, _ = model(tokens_NT[chosen_B, :time])
        loss = F.cross_entropy(logits_BTV.flatten(0, 1), answers_NT[chosen_B, :time].flatten(), ignore_index=_NOT_ASKED)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        if spec.clip is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), spec.clip)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, spec, Plateau())
        optimizer.step()
        recent = [*recent[-19:], loss.item()]
        if say is not None:
            say(step, spec.steps)
    model.eval()
    return float(np.mean(recent)) if recent else float("nan")


@torch.no_grad()
def _mean_loss(model: TokenMachine[Any], tokens_BT: Tensor, answers_BT: Tensor) -> float:
    logits_BTV, _ = model(tokens_BT)
    return F.cross_entropy(logits_BTV.flatten(0, 1), answers_BT.flatten(), ignore_index=_NOT_ASKED).item()


@torch.no_grad()
def ask(model: TokenMachine[Any], task: MemoryTask, rows: Sequence[MemoryRow]) -> list[list[bool]]:
    """For each row, which of its answers were right: the most likely of the options."""
    options = torch.tensor([task.symbols.index(option) for option in task.options])
    at_once = max(1, _SYMBOLS_AT_ONCE // max(len(row.symbols) for row in rows))
    correct: list[list[bool]] = []
    for begin in range(0, len(rows), at_once):
        part = rows[begin : begin + at_once]
        tokens_BT, answers_BT = as_tokens(part, task)
        logits_BTV, _ = model(tokens_BT)
        best_BT = options[logits_BTV[..., options].argmax(-1)]
        right_BT = best_BT == answers_BT
        correct += [[bool(right_T[place - 1]) for place in row.places] for right_T, row in zip(right_BT, part)]
    return correct


def probe(trial: Trial, *, say: Say | None = None) -> Probed:
    task = MEMORY_TASKS[trial.task]
    model = build(trial.model, vocab=len(task.symbols), seed=trial.seed)
    loss = learn(model, trial, say=say)
    model.eval()
    by_size: dict[int, tuple[int, int]] = {}
    by_distance: dict[int, tuple[int, int]] = {}
    state_bytes = {}
    for size in trial.sizes:
        # Another seed than in training.
        rows = task.rows(shortest=size, longest=size, count=trial.rows, seed=trial.seed + 1_000_003)
        answers = [
            (distance, right)
            for row, rights in zip(rows, ask(model, task, rows))
            for distance, right in zip(row.distances, rights)
        ]
        by_size[size] = (sum(right for _, right in answers), len(answers))
        for distance, right in answers:
            before = by_distance.get(distance, (0, 0))
            by_distance[distance] = (before[0] + right, before[1] + 1)
        state_bytes[size] = context_bytes(model, max(row.places[-1] for row in rows))
    parameters = sum(p.numel() for p in model.parameters())
    return Probed(by_size, dict(sorted(by_distance.items())), state_bytes, parameters, loss)


def kept_probe(trial: Trial, *, folder: Path, say: Say | None = None) -> Probed:
    """The same, from the cache where this trial was run before."""

    def make(made: Path) -> dict[str, Any]:
        return {"found": probe(trial, say=say)._asdict()}

    _, facts = open_entry(trial.key(), folder=folder, make=make)
    kept = facts["found"]
    counted = {name: {int(at): tuple(pair) for at, pair in kept[name].items()} for name in ("by_size", "by_distance")}
    return Probed(
        counted["by_size"],
        counted["by_distance"],
        {int(size): value for size, value in kept["state_bytes"].items()},
        kept["parameters"],
        kept["loss"],
    )


def planned(
    *,
    tasks: Sequence[str],
    families: Sequence[str],
    parameters: int,
    train: TrainSpec,
    longest: int,
    factors: Sequence[int],
    rows: int,
    seed: int,
) -> dict[tuple[str, str], Trial]:
    """Each family with its recipe, at the width that gives it this many parameters."""
    known = {row.name: row for row in LINEAGE}
    for name in families:
        if name not in known:
            raise UserError(f"{name!r} is not a family of models", fix=nearest(name, known))
    for name in tasks:
        if name not in MEMORY_TASKS:
            raise UserError(f"{name!r} is not a question about memory", fix=nearest(name, MEMORY_TASKS))
    trials = {}
    for task in tasks or tuple(MEMORY_TASKS):
        for family in families or tuple(known):
            spec = parse_spec(load_recipe(known[family].recipe), source=f"recipe {known[family].recipe!r}")
            assert isinstance(spec, LanguageModelSpec)
            model = fitted(spec.model, vocab=len(MEMORY_TASKS[task].symbols), parameters=parameters)
            sizes = tuple(longest * factor for factor in factors)
            trials[task, family] = Trial(task, model, train, longest, sizes, rows, seed)
    return trials


def run(
    trials: Mapping[tuple[str, str], Trial], *, folder: Path, workers: int, progress: Progress
) -> dict[tuple[str, str], Probed]:
    """All trials; results of earlier runs are reused."""
    results = dict(progress.over(_each(trials, folder=folder, workers=workers), "trials", total=len(trials)))
    return {name: results[name] for name in trials}


def _each(
    trials: Mapping[tuple[str, str], Trial], *, folder: Path, workers: int
) -> Iterator[tuple[tuple[str, str], Probed]]:
    if workers == 1 or len(trials) == 1:
        for name, trial in trials.items():
            yield name, kept_probe(trial, folder=folder)
        return
    # Forking a process that has used torch's threads can hang.
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_alone) as pool:
        waiting = {pool.submit(kept_probe, trial, folder=folder): name for name, trial in trials.items()}
        try:
            for done in as_completed(waiting):
                yield waiting[done], done.result()
        except BrokenProcessPool:
            raise UserError(
                "a worker process has ended; perhaps memory ran out",
                fix=f"finished trials are kept; run it again with {lens_setting('workers', 1)}",
            ) from None


def _alone() -> None:
    """One thread for each worker: together they use all cores."""
    torch.set_num_threads(1)
