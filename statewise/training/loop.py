"""The training loop, written once for every machine and every task.

One step reads one window: forward and backward segment by segment as the truncation policy says, clip,
check, update. All chance (dropout, truncation, data order) is a function of the seed, the step and the
rank, so nothing random has to be saved and a resumed run repeats the uncut one bit for bit.
"""

import hashlib
import math
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, replace
from itertools import pairwise
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from statewise.core import State, concat, detach, leaves, map_state, rows
from statewise.specs import TrainSpec, UserError, nearest
from statewise.training.course import Progress, passed
from statewise.training.device import autocast
from statewise.training.folder import Checkpoint, RunFolder, load_weights, model_tensors, weights_sha256
from statewise.training.journal import Journal
from statewise.training.optimizer import Average, make_optimizer, optimizer_tensors, restore_optimizer
from statewise.training.parallel import Parallel
from statewise.training.problem import NonFinite, Stopped
from statewise.training.progress import Display, Silent
from statewise.training.schedule import learning_rate
from statewise.training.signals import Signals
from statewise.training.task import Better, Task, Window
from statewise.training.truncation import Segment, pass_gradient, segments

S = TypeVar("S", bound=State)


class Outcome(NamedTuple):
    step: int
    best_step: int | None
    evaluation: dict[str, float]  # of the best step
    weights_sha256: str
    tokens_per_second: float
    seconds: float  # of training, over all sessions; evaluation and saving are not training


class _Interrupted(Exception):
    """Raised by `poll` inside an evaluation."""


def fit(
    model: nn.Module,
    task: Task,
    spec: TrainSpec,
    *,
    seed: int = 0,
    folder: RunFolder | None = None,
    resume: Checkpoint | None = None,
    par: Parallel | None = None,
    display: Display | None = None,
    signals: Signals | None = None,
    on_step: Callable[[int], None] | None = None,
) -> Outcome:
    """Train `model` on `task`, from the start or from a checkpoint, until the spec's end or a signal."""
    par = par or Parallel(device=next(model.parameters()).device)
    trainer = Trainer(model, task, spec, seed, folder if par.leads else None, par, display or Silent())
    if resume is not None:
        trainer.restore(resume)
    with nullcontext(signals) if signals is not None else Signals() as watched:
        return trainer.run(watched, on_step or (lambda step: None))


class Trainer:
    """One run: `step` makes an update, `run` makes all of them, with evaluations and checkpoints between."""

    def __init__(
        self,
        model: nn.Module,
        task: Task,
        spec: TrainSpec,
        seed: int,
        folder: RunFolder | None,
        par: Parallel,
        display: Display,
    ) -> None:
        self.model, self.task, self.spec, self.seed = model, task, spec, seed
        self.folder, self.par, self.display = folder, par, display
        self.judge, self.better = judge_of(task, spec)
        self.optimizer = make_optimizer(model, spec)
        self.average = Average(model, decay=spec.average)
        if spec.average is not None:
            self.average.start()
        self.progress = Progress()
        self.rate = 0.0  # of the last step
        self.state: State | None = None

    # ---------------------------------------------------------------- one step

    def step(self, number: int) -> tuple[float, float, int]:
        """Forward, backward, clip, update. Returns mean loss, gradient norm before clipping, tokens read."""
        window, loss = self.gradient(number)
        self.par.average_gradients(self.model)
        norm = torch.nn.utils.get_total_norm([p.grad for p in self.model.parameters() if p.grad is not None])
        total_norm = float(norm)
        bad = not (math.isfinite(loss) and math.isfinite(total_norm))
        if self.par.largest(float(bad))[0]:
            raise NonFinite(number, self.culprit(loss))
        if self.spec.clip is not None:
            torch.nn.utils.clip_grads_with_norm_(self.model.parameters(), self.spec.clip, norm)
        self.rate = learning_rate(self.progress.place_of(number, self.spec), self.spec, self.progress.plateau)
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.average.add()
        return self.par.mean(loss), total_norm, window.tokens

    def gradient(self, number: int) -> tuple[Window, float]:
        """Forward and backward of a step: what it read, and its mean loss."""
        _reseed(_seed_of(self.seed, number, self.par.rank), self.par.device)
        if not self.model.training:
            self.model.train()
        window = self.task.window(number - 1)
        if window.fresh or self.state is None:
            self.state = self.task.begin(self.model, window.rows)
        cuts = segments(self.spec.truncation, window.time, key=(self.seed, number))
        return window, self.backward(window, cuts)

    def rehearse(self) -> float:
        """The next step without its update, before the clock runs: whoever compiles kernels does not pay for it with
        time to learn. Nothing is changed by it. Returns the seconds it took."""
        began, state = time.monotonic(), self.state
        self.gradient(self.progress.step + 1)
        self.optimizer.zero_grad(set_to_none=True)
        self.state = state
        return time.monotonic() - began

    def backward(self, window: Window, cuts: list[Segment]) -> float:
        """The gradient of the window's mean loss, accumulated over parts of the rows and segments of time."""
        assert self.state is not None
        parts = _parts(window.rows, self.spec.accumulate)
        scale = 1 / window.weight
        losses, states = [], []
        for some in parts:
            state = rows(self.state, some)
            for run in _runs(cuts):
                total: Tensor | None = None
                for segment in run:
                    state = pass_gradient(state, segment.flow)
                    with autocast(self.spec, self.par.device):
                        loss, state = self.task.loss(
                            self.model, window, some, slice(segment.start, segment.stop), state
                        )
                    total = loss if total is None else total + loss
                assert total is not None
                (total * scale).backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
                losses.append(total.detach())
                state = detach(state)
            states.append(state)
        self.state = _laid_out(concat(states) if len(states) > 1 else states[0])
        return float(torch.stack(losses).sum()) * scale

    def culprit(self, loss: float) -> str:
        """The name of what is not finite, the cause before the symptom."""
        for name, p in self.model.named_parameters():
            if not torch.isfinite(p).all():
                return f"weight {name}"
        if not math.isfinite(loss):
            return "the loss"
        for name, p in self.model.named_parameters():
            if p.grad is not None and not torch.isfinite(p.grad).all():
                return f"the gradient of {name}"
        return "the loss or a gradient on another rank"

    # ---------------------------------------------------------------- the run

    def run(self, signals: Signals, on_step: Callable[[int], None]) -> Outcome:
        spec, first = self.spec, self.progress.step
        evaluated = self.progress.evaluated
        journal = None
        if self.folder is not None:
            journal = Journal(self.folder.path, after_step=first, evaluated=evaluated)
        self.display.start(self.progress.extent(spec))
        before, speed = self.progress, 0.0
        try:
            if not evaluated:
                self.conclude(signals, journal, save=True)
            if spec.seconds is not None and not self.progress.is_over(spec):
                took = self.rehearse()
                self.display.say(f"a step was rehearsed in {took:.2g} s, which do not count")
                if journal is not None:
                    journal.timing(first, rehearsal_seconds=took)
            while not self.progress.is_over(spec) and not self.progress.gave_up(spec):
                number, at = self.progress.step + 1, self.progress.place(spec)
                began = time.monotonic()
                loss, norm, tokens = self.step(number)
                took = time.monotonic() - began
                if spec.seconds is not None:
                    (took,) = self.par.largest(took)  # whatever decides the course of a run is agreed on
                on_step(number)
                clipped = spec.clip is not None and norm > spec.clip
                total, count, clips, largest = self.progress.since_log
                self.progress = replace(
                    self.progress,
                    step=number,
                    tokens=self.progress.tokens + tokens,
                    seconds=self.progress.seconds + took,
                    since_log=(total + loss, count + 1, clips + clipped, max(largest, norm)),
                )
                busy = max(self.progress.seconds - before.seconds, 1e-9)
                speed = (self.progress.tokens - before.tokens) / busy
                over = self.progress.is_over(spec)
                log, evaluate, save = (
                    over or passed(every, before=at, after=self.progress.place(spec))
                    for every in (spec.log_every, spec.evaluate_every, spec.save_every)
                )
                if log:
                    self.log(journal, speed)
                self.display.update(self.progress.extent(spec), loss=loss, tokens_per_second=speed)
                self.progress = replace(self.progress, evaluated=not evaluate)
                self.conclude(signals, journal, save=save)
        finally:
            self.display.stop()
            if journal is not None:
                journal.close()
        with self.average.swapped_in():
            digest = weights_sha256(self.model)
        if self.folder is not None and self.progress.best_step is None:
            self.publish()  # zero steps were asked for: the folder holds the initial weights
        end = self.progress
        return Outcome(end.step, end.best_step, end.best, digest, speed, end.seconds)

    def conclude(self, signals: Signals, journal: Journal | None, *, save: bool) -> None:
        """What follows an update: the evaluation if it is due, a checkpoint if one is, the end if a signal asks."""
        saved = not self.progress.evaluated and self.evaluate(signals, journal)
        stop = int(self.par.largest(float(signals.received))[0])
        if not saved and (stop or save or self.progress.gave_up(self.spec)):
            self.save()
        if stop:
            raise Stopped(stop, self.progress.step)

    def log(self, journal: Journal | None, speed: float) -> None:
        total, count, clips, largest = self.progress.since_log
        if journal is not None:
            journal.metrics(
                self.progress.step,
                loss=total / count,
                lr=self.rate,
                gradient_norm=largest,
                clipped=clips,
                tokens=self.progress.tokens,
            )
            journal.timing(self.progress.step, tokens_per_second=speed, seconds=self.progress.seconds)
        self.progress = replace(self.progress, since_log=Progress().since_log)

    def evaluate(self, signals: Signals, journal: Journal | None) -> bool:
        """Evaluate, remember, publish and save the best. True if a checkpoint was written."""

        def poll() -> None:
            if signals.received:
                raise _Interrupted

        figures: dict[str, float] = {}
        if self.par.leads:
            self.model.eval()
            try:
                with self.average.swapped_in(), torch.no_grad():
                    figures = self.task.evaluate(self.model, poll)
            except _Interrupted:
                figures = {}
        names, values = list(figures), list(figures.values())
        figure, interrupted = self.par.from_leader([figures.get(self.judge, math.nan), float(not figures)])
        if interrupted:
            return False
        number = self.progress.step
        if not math.isfinite(figure):
            raise NonFinite(number, f"the validation {self.judge}", kept_from="nothing was saved")
        cost = figure if self.better == "lower" else -figure
        improved = cost < self.progress.plateau.best
        plateau = self.progress.plateau.after(cost, self.spec)
        if self.spec.optimizer == "asgd" and self.average.count == 0 and plateau.stale >= self.spec.trigger:
            self.average.start()
            self.display.say(f"step {number}: validation has not improved {plateau.stale} times, averaging starts")
        self.progress = replace(
            self.progress,
            plateau=plateau,
            evaluated=True,
            best_step=number if improved else self.progress.best_step,
            best=dict(zip(names, values)) if improved else self.progress.best,
        )
        if journal is not None:
            journal.metrics(number, **{f"validation_{name}": value for name, value in figures.items()})
        self.display.say(f"step {number}: " + "  ".join(f"{n} {v:.4f}" for n, v in figures.items()))
        if self.progress.gave_up(self.spec):
            self.display.say(f"step {number}: no improvement in {plateau.stale} evaluations, stopping early")
        if improved:
            self.save()
            self.publish()
        return improved

    # ---------------------------------------------------------------- the folder

    def save(self) -> None:
        """Every rank takes part (its rows are gathered); the leader writes."""
        assert self.state is not None
        for name, p in self.model.named_parameters():
            if not torch.isfinite(p).all():
                raise NonFinite(self.progress.step, f"weight {name}", kept_from="nothing was saved")
        carried = self.par.gather_rows(self.state)
        if self.folder is None:
            return
        record = {**asdict(replace(self.progress, averaged=self.average.count)), "world": self.par.world}
        record["plateau"] = list(self.progress.plateau)
        self.folder.save(
            self.progress.step,
            weights=model_tensors(self.model),
            optimizer=optimizer_tensors(self.optimizer),
            average=self.average.tensors(),
            carried=carried,
            progress=record,
            keep=self.spec.keep,
        )

    def publish(self) -> None:
        if self.folder is not None:
            with self.average.swapped_in():
                self.folder.publish(model_tensors(self.model))

    def restore(self, checkpoint: Checkpoint) -> None:
        load_weights(self.model, checkpoint.path / "model.safetensors")
        restore_optimizer(self.optimizer, checkpoint.optimizer())
        self.progress = Progress.from_record(checkpoint.progress)
        self.average.restore(checkpoint.average(), self.progress.averaged)
        carried = checkpoint.carried(like=self.task.begin(self.model, 1))
        if any(len(leaf) != self.spec.batch for _, leaf in leaves(carried)):
            raise UserError(f"the state carried in {checkpoint.path.name} is not that of {self.spec.batch} rows")
        self.state = _laid_out(rows(carried, self.par.my_rows(self.spec.batch)))
        if self.progress.best_step == self.progress.step:
            self.publish()  # a kill may have come between saving the best and publishing it


def judge_of(task: Task, spec: TrainSpec) -> tuple[str, Better]:
    """The figure that decides which weights are best."""
    judges = task.judges
    name = spec.judge or next(iter(judges))
    if name not in judges:
        raise UserError(f"train.judge = {name!r} is not a figure of this task", fix=nearest(name, judges))
    return name, judges[name]


def _laid_out(state: S) -> S:
    """In memory of its own, row after row: from another layout a product may round differently than after a resume."""
    return map_state(lambda leaf: leaf.clone(memory_format=torch.contiguous_format), state)


def _parts(count: int, wanted: int) -> list[slice]:
    """`count` rows in `wanted` nearly equal slices (fewer when there are fewer rows)."""
    wanted = min(wanted, count)
    edges = [count * i // wanted for i in range(wanted + 1)]
    return [slice(a, b) for a, b in pairwise(edges)]


def _runs(cuts: list[Segment]) -> list[list[Segment]]:
    """Segments between which gradient flows belong to one backward pass."""
    grouped: list[list[Segment]] = []
    for segment in cuts:
        if segment.flow == 0.0 or not grouped:
            grouped.append([segment])
        else:
            grouped[-1].append(segment)
    return grouped


def _reseed(seed: int, device: torch.device) -> None:
    """`torch.manual_seed` without the devices that are not in use, which cost it more than the seeding."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)


def _seed_of(*key: int) -> int:
    """A well-mixed 63-bit number that depends on every part of the key."""
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
