"""The training loop, written once for every machine and every task.

Steps, and between them what the spec asks for: records, evaluations, checkpoints. All randomness (dropout, truncation,
data order) is a function of the seed, the step and the rank, so nothing random has to be saved and a resumed run
repeats the uncut one bit for bit. A GPU may be some steps behind the host; code that needs the numbers of all steps so
far waits for them first.
"""

import math
import time
from collections import deque
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import asdict, replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from statewise.core import leaves, rows
from statewise.specs import Note, TrainSpec, UserError, from_toml
from statewise.training.folder import Checkpoint, RunFolder, load_weights, model_tensors, tensors_sha256
from statewise.training.journal import Journal
from statewise.training.optimizer import optimizer_tensors, restore_optimizer
from statewise.training.parallel import Parallel, rows_of_part
from statewise.training.progress import Display, Silent
from statewise.training.progress_state import Progress, learning_rate, passed
from statewise.training.saving import Writes
from statewise.training.sharded import place
from statewise.training.step_report import Readings, Sent
from statewise.training.stop import NonFinite, Signals, Stopped
from statewise.training.task import Task, judge_of
from statewise.training.trackers import open_tracker
from statewise.training.update import Updater, contiguous_copy


class Outcome(NamedTuple):
    step: int
    best_step: int | None
    evaluation: dict[str, float]  # of the best step
    weights_sha256: str
    tokens_per_second: float
    seconds: float  # of training, over all sessions; evaluation and saving are not training


class _Interrupted(Exception):
    """Raised by `poll` inside an evaluation."""


_INTERRUPTED, _FAILED = 1.0, 2.0  # how an evaluation ended, as the leader tells the other ranks


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
    trainer = Trainer(model, task, spec, seed, folder, par, display or Silent())
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
        self.folder, self.par, self.display = folder if par.leads else None, par, display
        self.shared = folder  # which all processes write to where the model is divided between them
        self.writes = Writes(par, background=spec.save_in_background)
        self.judge, self.better = judge_of(task, spec)
        self.placement = place(model, task, spec, par)
        self.updater = Updater(model, task, spec, seed=seed, par=par, placement=self.placement)
        self.average = self.updater.average
        self.progress = Progress()
        self.readings = Readings()
        self.sent: deque[Sent] = deque()
        self.loss: float | None = None  # of the last step whose numbers were read
        self.exploded = False  # whether that step shows that the weights are destroyed
        self.speed = 0.0
        self.together = par.world == 1  # whether all ranks fail at the same place, and so can save together

    # ---------------------------------------------------------------- one step

    def step(self, number: int) -> tuple[float, float, int]:
        """One update by itself. Returns mean loss, gradient norm before clipping, tokens read."""
        result = self.updater.take(number, rate=self.rate_of(number))
        numbers = result.numbers.tolist() if isinstance(result.numbers, Tensor) else result.numbers
        total, norm = self.read(number, numbers)
        return total * result.scale, norm, result.tokens

    def rate_of(self, number: int) -> float:
        return learning_rate(self.progress.place_of(number, self.spec), self.spec, self.progress.plateau)

    def read(self, number: int, numbers: list[float]) -> tuple[float, float]:
        """Summed loss and gradient norm. If they are not finite, neither this step nor a later one was made."""
        total, norm = numbers[:2]
        if not (math.isfinite(total) and math.isfinite(norm)):
            guard = self.updater.guard
            culprit = None if guard is None else guard.culprit(numbers)
            raise NonFinite(number, self.updater.bad_weight() or culprit or "a norm")
        return total, norm

    # ---------------------------------------------------------------- the run

    def run(self, signals: Signals, on_step: Callable[[int], None]) -> Outcome:
        spec, first = self.spec, self.progress.step
        evaluated = self.progress.evaluated
        journal = None
        if self.folder is not None:
            settings = from_toml(str(self.folder.identity.get("run.toml", ""))) if spec.log else {}
            trackers = [open_tracker(kind, self.folder.path, settings) for kind in spec.log]
            journal = Journal(self.folder.path, after_step=first, evaluated=evaluated, trackers=trackers)
        self.display.start(self.progress.extent(spec))
        before = self.progress
        try:
            if not evaluated:
                self.after_step(signals, journal, save=True)
            if first == 0 and not self.progress.is_over(spec):
                self.save()  # a failure in the first steps then leaves a checkpoint to resume from
                self.writes.finish()
            if spec.seconds is not None and not self.progress.is_over(spec):
                began = time.monotonic()
                self.updater.rehearse(first + 1)
                took = time.monotonic() - began
                self.display.say(f"a step was rehearsed in {took:.2g} s, which do not count")
                if journal is not None:
                    journal.timing(first, rehearsal_seconds=took)
            while not self.progress.is_over(spec) and not self.progress.gave_up(spec):
                number, at = self.progress.step + 1, self.progress.place(spec)
                rate = self.rate_of(number)
                began = time.monotonic()
                result = self.updater.take(number, rate=rate)
                if isinstance(result.numbers, Tensor):
                    self.readings.put(result.numbers)
                    read = list(self.readings.due())
                else:
                    read = [result.numbers]
                took = time.monotonic() - began
                if spec.seconds is not None and self.par.world > 1:
                    (took,) = self.par.largest(took)  # all ranks must end at the same step
                self.progress = replace(
                    self.progress,
                    step=number,
                    tokens=self.progress.tokens + result.tokens,
                    seconds=self.progress.seconds + took,
                )
                busy = max(self.progress.seconds - before.seconds, 1e-9)
                self.speed = (self.progress.tokens - before.tokens) / busy
                log, evaluate, save = self.due(at)
                self.progress = replace(self.progress, evaluated=not evaluate)
                self.sent.append(Sent(number, rate, result.scale, self.progress.tokens, self.progress.seconds, log=log))
                for numbers in read:
                    self.record_step(numbers, journal)
                on_step(number)
                if number == first + 1:
                    self.report_capture()
                if self.loss is not None and type(self.display) is not Silent:
                    self.display.update(self.progress.extent(spec), loss=self.loss, tokens_per_second=self.speed)
                if evaluate or save:
                    self.drain_readings(journal)
                    _, evaluate, save = self.due(at)  # waiting takes time, which may count
                    self.progress = replace(self.progress, evaluated=not evaluate)
                self.after_step(signals, journal, save=save)
            self.drain_readings(journal)
            if self.progress.best_step is None:
                self.publish()  # zero steps were asked for: the folder holds the initial weights
            self.writes.finish()
        except Exception as error:
            self.rescue(error, journal, since=first)
            raise
        finally:
            self.writes.close()
            self.display.stop()
            if journal is not None:
                journal.close()
        with self.average.swapped_in():
            digest = tensors_sha256(self.placement.each_whole(dict(sorted(model_tensors(self.model).items()))))
        end = self.progress
        return Outcome(end.step, end.best_step, end.best, digest, self.speed, end.seconds)

    def due(self, at: float) -> tuple[bool, bool, bool]:
        """Whether a record, an evaluation and a checkpoint are due, if the run was at `at` before the last step."""
        over, now = self.progress.is_over(self.spec), self.progress.place(self.spec)
        log, evaluate, save = (
            over or passed(every, before=at, after=now)
            for every in (self.spec.log_every, self.spec.evaluate_every, self.spec.save_every)
        )
        return log, evaluate, save

    def record_step(self, numbers: list[float], journal: Journal | None) -> None:
        """Record the numbers of the oldest step that was not read yet."""
        sent = self.sent.popleft()
        total, norm = self.read(sent.number, numbers)
        self.loss = total * sent.scale
        self.progress = replace(self.progress, first=self.progress.first or (self.loss, norm))
        self.exploded = self.progress.exploded(self.loss, norm, self.spec)
        clipped = self.spec.clip is not None and norm > self.spec.clip
        losses, count, clips, largest = self.progress.since_log
        since_log = (losses + self.loss, count + 1, clips + clipped, max(largest, norm))
        self.progress = replace(self.progress, since_log=since_log)
        if sent.log:
            self.log(sent, journal)

    def drain_readings(self, journal: Journal | None) -> None:
        """Wait for all queued steps; the wait counts as training time."""
        began = time.monotonic()
        read = list(self.readings.due(all_of_them=True))
        if read:
            took = time.monotonic() - began
            self.progress = replace(self.progress, seconds=self.progress.seconds + took)
        for numbers in read:
            self.record_step(numbers, journal)

    def after_step(self, signals: Signals, journal: Journal | None, *, save: bool) -> None:
        """After an update: evaluate if due, save a checkpoint if due, stop if a signal came."""
        saved = not self.progress.evaluated and self.evaluate(signals, journal)
        stop = signals.received
        if self.par.world > 1 or self.spec.save_in_background:
            received, *writing = self.par.largest(float(stop), *self.writes.look())
            self.writes.go_on(*writing)
            stop = int(received)
        if not saved and (stop or save or self.progress.gave_up(self.spec)):
            self.drain_readings(journal)
            self.save()
        if stop:
            self.writes.finish()
            raise Stopped(stop, self.progress.step)

    def report_capture(self) -> None:
        """On a GPU, say whether steps are replayed from a graph: it decides their speed."""
        graphs = self.updater.graphs
        if graphs is not None and self.par.device.type == "cuda":
            why = graphs.why
            self.display.say("a step is one captured graph" if why is None else f"steps are not captured: {why}")

    def log(self, sent: Sent, journal: Journal | None) -> None:
        losses, count, clips, largest = self.progress.since_log
        if journal is not None:
            journal.metrics(
                sent.number, loss=losses / count, lr=sent.rate, gradient_norm=largest, clipped=clips, tokens=sent.tokens
            )
            journal.timing(sent.number, tokens_per_second=self.speed, seconds=sent.seconds)
        self.progress = replace(self.progress, since_log=Progress().since_log)

    def evaluate(self, signals: Signals, journal: Journal | None) -> bool:
        """Evaluate, remember, publish and save the best. True if a checkpoint was written."""

        everyone = self.placement.parts > 1  # reads the same data, to gather each layer when it is read

        def poll() -> None:
            received = self.par.largest(float(signals.received))[0] if everyone else signals.received
            if received:
                raise _Interrupted

        metrics: dict[str, float] = {}
        failure: Exception | None = None
        if self.par.leads or everyone:
            self.model.eval()
            try:
                with self.average.swapped_in(), torch.no_grad():
                    metrics = self.placement.call(lambda: self.task.evaluate(self.model, poll))
            except _Interrupted:
                metrics = {}
            except Exception as error:
                failure = error
        ended = _FAILED if failure is not None else 0.0 if metrics else _INTERRUPTED
        value, ended = self.par.from_leader([metrics.get(self.judge, math.nan), ended])
        if ended == _FAILED:
            self.together = True
            raise failure or RuntimeError("the evaluation failed on rank 0, whose message says why")
        if ended == _INTERRUPTED:
            return False
        number = self.progress.step
        if not math.isfinite(value):
            raise NonFinite(number, f"the validation {self.judge}", kept_from="nothing was saved")
        if journal is not None:  # before it counts as evaluated: where this fails, a resumed run evaluates again
            journal.metrics(number, **{f"validation_{name}": metric for name, metric in metrics.items()})
        cost = value if self.better == "lower" else -value
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
            best=dict(metrics) if improved else self.progress.best,
        )
        self.display.say(f"step {number}: " + "  ".join(f"{n} {v:.4f}" for n, v in metrics.items()))
        if self.progress.gave_up(self.spec):
            self.display.say(f"step {number}: no improvement in {plateau.stale} evaluations, stopping early")
        if improved:
            self.save()
            self.publish()
        return improved

    # ---------------------------------------------------------------- the folder

    def save(self) -> bool:
        """Write a checkpoint. All ranks take part (their rows are gathered). False: the weights are not worth it."""
        if self.folder is None and self.par.world == 1:
            return True
        if (weight := self.updater.bad_weight()) is not None:
            raise NonFinite(self.progress.step, weight, kept_from="nothing was saved")
        if self.exploded:
            self.display.say(f"step {self.progress.step}: not saved, because the loss or the gradient has exploded")
            return False
        state = self.updater.state
        if state is None:  # the next window is fresh
            mine = self.par.my_rows(self.spec.batch)
            state = self.placement.call(lambda: self.task.begin(self.model, mine.stop - mine.start))
        record = {**asdict(replace(self.progress, averaged=self.average.count)), "world": self.par.world}
        record["threads"] = torch.get_num_threads()
        record["plateau"] = list(self.progress.plateau)
        self.writes.checkpoint(
            self.shared,
            self.placement,
            step=self.progress.step,
            weights=model_tensors(self.model),
            optimizer=optimizer_tensors(self.updater.optimizer),
            average=self.average.tensors(),
            carried=self.par.gather_rows(state),
            progress=record,
            keep=self.spec.keep,
        )
        return True

    def rescue(self, error: Exception, journal: Journal | None, *, since: int) -> None:
        """After a failure, save the last finished step and add to the error how to continue.

        A run with a value that is not finite is not saved; one that a signal ended is saved already.
        """
        step = self.progress.step
        no_folder = self.folder is None and self.par.world == 1
        if isinstance(error, NonFinite):
            with suppress(Exception):
                self.writes.finish()
        if isinstance(error, NonFinite) and self.folder is not None:
            error.add_note(Note(self.folder.way_back()))
        if isinstance(error, NonFinite | Stopped) or no_folder or not step or not self.together:
            return
        problem = "" if self.updater.intact else "it stopped in the middle of an update"
        if step > since and not problem:
            try:
                self.drain_readings(journal)
                if not self.save():
                    problem = "the loss or the gradient has exploded"
                self.writes.finish()
            except Exception as second:
                problem = str(second)
        if self.folder is not None:
            error.add_note(Note(self.folder.way_on(step, problem)))

    def publish(self) -> None:
        if self.shared is not None:
            with self.average.swapped_in():
                weights = self.writes.whole(self.placement, model_tensors(self.model))
                if self.folder is not None:
                    self.writes.follow(partial(self.folder.publish_once, weights))

    def restore(self, checkpoint: Checkpoint) -> None:
        placement = self.placement
        load_weights(self.model, checkpoint.path / "model.safetensors", placement)
        placement.to_weights()
        some = partial(rows_of_part, part=placement.part, parts=placement.parts)
        restore_optimizer(self.updater.optimizer, checkpoint.optimizer(some))
        self.progress = Progress.from_record(checkpoint.progress)
        self.average.restore(checkpoint.average(some), self.progress.averaged)
        carried = checkpoint.carried(like=placement.call(lambda: self.task.begin(self.model, 1)))
        if any(len(leaf) != self.spec.batch for _, leaf in leaves(carried)):
            raise UserError(f"the state carried in {checkpoint.path.name} is not that of {self.spec.batch} rows")
        self.updater.state = contiguous_copy(rows(carried, self.par.my_rows(self.spec.batch)))
        if self.progress.best_step == self.progress.step:
            self.publish()  # a kill may have come between saving the best and publishing it
