"""One thread owns torch: it takes jobs from the event loop, gives every model its turn, and hands events back.

The event loop is woken once a turn, not once a token. A request that breaks something ends with an error, and so do the
texts beside it in that model's batch; the engine goes on. It is dead only if its thread is.
"""

import asyncio
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import torch

from statewise.decoding import Continuation
from statewise.runtime import STREAM
from statewise.serving.job import Event, Job, Refused
from statewise.serving.metrics import Metrics
from statewise.serving.scheduler import Scheduler
from statewise.serving.served import Served, served_runs
from statewise.serving.store import New, StateStore, is_state_id
from statewise.specs import ServingSpec, UserError
from statewise.tasks import LanguageModelRun, PredictingRun, Run

_SAVED_AT_ONCE = 256  # states of one transaction
_HANGS = 60.0  # seconds of one turn after which the engine counts as dead
_log = logging.getLogger("statewise.serving")


class Engine:
    """Serves runs by name. `submit`, `cancel` and the store may be used from any thread."""

    def __init__(self, runs: Mapping[str, Run], spec: ServingSpec) -> None:
        self.spec, self.metrics = spec, Metrics()
        self.models: dict[str, Served] = served_runs(runs)
        texts = {name: run for name, run in runs.items() if isinstance(run, LanguageModelRun)}
        self.store = StateStore(
            most=spec.state_count,
            most_bytes=spec.state_memory,
            folder=None if spec.states is None else Path(spec.states),
            check={name: partial(self._tokens_read, name) for name in texts},
        )
        self._schedulers = {
            name: Scheduler(
                run,
                slots=spec.slots,
                prefix_bytes=0 if spec.prefix_sharing == "none" else spec.prefix_bytes,
                shared=spec.prefix_sharing == "all",
                alone=spec.batch_invariant,
                queue_seconds=spec.queue_seconds,
                deliver=self._deliver,
                save=self._save,
                metrics=self.metrics,
                context=self.models[name].max_context,
            )
            for name, run in texts.items()
        }
        self._inbox: deque[Callable[[], None]] = deque()
        self._wake = threading.Event()
        self._unread = 0  # texts in the inbox
        self._lock = threading.Lock()
        self._outbox: list[tuple[Job, Event]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="statewise-engine", daemon=True)
        self._unsaved: SimpleQueue[tuple[Job, New, Event] | None] = SimpleQueue()  # None: no more
        self._writer = threading.Thread(target=self._write_states, name="statewise-states", daemon=True)
        self._calls = 0  # predictions that are asked for and not answered
        self._stopping = self._draining = False
        self._turn_began = 0.0  # 0: idle

    # ---------------------------------------------------------------- from the event loop

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread.start()
        self._writer.start()

    def submit(self, jobs: Sequence[Job]) -> None:
        """Accept all of these jobs or none. Jobs with one prompt and one start share its reading."""
        if self._draining or self._stopping:
            raise Refused("stopping", "the server is shutting down")
        if not self.alive:
            raise Refused("failed", "the engine has stopped")
        for job in jobs:
            self._check(job)
        with self._lock:
            waiting = self._unread + sum(each.waiting for each in self._schedulers.values())
            running = sum(each.running for each in self._schedulers.values())
            if waiting + running + len(jobs) > self.spec.slots * max(1, len(self._schedulers)) + self.spec.queue:
                self.metrics.rejected("overloaded")
                raise Refused("overloaded", "too many texts are waiting; try again later")
            self._unread += len(jobs)
        groups: dict[tuple[Any, ...], list[Job]] = {}
        for job in jobs:
            how = (job.model, job.start, job.owner, job.echo, job.logprobs, job.whole, job.read)
            key = (*how, bytes(str(list(job.prompt)), "ascii"))
            groups.setdefault(key, []).append(job)
        arrived = time.monotonic()
        self._put(lambda: self._accept(list(groups.values()), len(jobs), arrived))

    def _check(self, job: Job) -> None:
        served = self.models.get(job.model)
        if served is None or job.model not in self._schedulers:
            raise Refused(
                "not_found", f"no language model {job.model!r} is served", param="model", code="model_not_found"
            )
        vocab = served.vocab or 0
        if any(not 0 <= token < vocab for token in job.prompt):
            raise Refused("invalid", f"the prompt holds a token outside the vocabulary of {vocab}", param="prompt")
        if any(not 0 <= token < vocab for token, _ in job.sampling.bias):
            raise Refused("invalid", f"a token is outside the vocabulary of {vocab}", param="logit_bias")
        if any(not 0 <= token < vocab for token in job.stop_ids):
            raise Refused("invalid", f"a token is outside the vocabulary of {vocab}", param="stop_token_ids")
        try:
            job.sampling.check()
        except UserError as error:
            raise Refused("invalid", error.what) from None
        if job.save is not None and not is_state_id(job.save):
            raise Refused("invalid", f"{job.save!r} is not a valid id for a state", param="save_state")
        begun = 1
        if job.start is not None:
            about = self.store.describe(job.start, job.owner)
            if about["model"] != job.model:
                raise Refused("invalid", f"the state {job.start!r} is of the model {about['model']!r}", param="state")
            begun += about["tokens"]
        longest = served.max_context
        if longest is not None and begun + len(job.prompt) + job.max_tokens > longest + 1:
            raise Refused(
                "invalid",
                f"{begun - 1 + len(job.prompt)} tokens and {job.max_tokens} new ones exceed the context of {longest}",
                param="prompt",
                code="context_length_exceeded",
            )

    def cancel(self, jobs: Sequence[Job]) -> None:
        """Give these jobs up; they deliver no further event, and their rows are free after the current step."""

        def give_up() -> None:
            for name, scheduler in self._schedulers.items():
                scheduler.cancel([job for job in jobs if job.model == name])

        self._put(give_up)

    async def predict(self, model: str, given: list[Any], *, owner: str) -> list[dict[str, Any]]:
        """The answers of a run of another task: the dictionaries of `predict_rows`."""
        served = self.models.get(model)
        if served is None or not isinstance(served.run, PredictingRun):
            raise Refused(
                "not_found", f"no model {model!r} is served that predicts", param="model", code="model_not_found"
            )
        if self._draining or not self.alive:
            raise Refused("stopping", "the server is shutting down")
        with self._lock:
            if self._calls >= self.spec.queue + 1:
                self.metrics.rejected("overloaded")
                raise Refused("overloaded", "too many requests are waiting; try again later")
            self._calls += 1
        run, loop = served.run, asyncio.get_running_loop()
        answer: asyncio.Future[list[dict[str, Any]]] = loop.create_future()

        def work() -> None:
            try:
                if answer.cancelled():
                    return
                found = run.predict_values(given)
                loop.call_soon_threadsafe(_settle, answer, found, None)
            except UserError as error:
                loop.call_soon_threadsafe(_settle, answer, None, Refused("invalid", str(error), param="input"))
            except Exception as error:
                _log.exception("a prediction failed")
                failed = Refused("failed", f"the prediction failed: {type(error).__name__}")
                loop.call_soon_threadsafe(_settle, answer, None, failed)
            finally:
                with self._lock:
                    self._calls -= 1

        self._put(work)
        return await answer

    async def drain(self, seconds: float) -> None:
        """Refuse what comes, and wait for what runs, at most so long."""
        self._draining = True
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.alive and (self._unread or self._calls or self._texts()):
            await asyncio.sleep(0.02)

    def stop(self) -> None:
        """End the thread after its turn; texts that still run get an error."""
        self._stopping = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(10.0)
        self._unsaved.put(None)
        if self._writer.is_alive():
            self._writer.join()
        self.store.close()

    @property
    def alive(self) -> bool:
        hangs = self._turn_began and time.monotonic() - self._turn_began > _HANGS
        return self._thread.is_alive() and not hangs

    def gauges(self) -> dict[str, float]:
        found: dict[str, float] = {
            "requests_running": sum(each.running for each in self._schedulers.values()),
            "requests_waiting": self._unread + sum(each.waiting for each in self._schedulers.values()),
            "saved_states": len(self.store),
            "saved_state_bytes": self.store.held_bytes,
        }
        for name, scheduler in self._schedulers.items():
            found[f'state_bytes{{model="{name}",family="{self.models[name].family}"}}'] = scheduler.state_bytes
        return found

    def _texts(self) -> int:
        return sum(each.running + each.waiting for each in self._schedulers.values())

    def _put(self, work: Callable[[], None]) -> None:
        self._inbox.append(work)
        self._wake.set()

    # ---------------------------------------------------------------- in the engine's thread

    def _run(self) -> None:
        if not self.spec.batch_invariant:  # `generate` computes with all of them
            # One core is for the event loop: threads that wait for each other must not wait for it, too.
            spare = max(1, min(torch.get_num_threads(), (os.cpu_count() or 1) - 1))
            torch.set_num_threads(self.spec.threads or spare)
        with torch.no_grad():
            while not self._stopping:
                self._turn_began = time.monotonic()
                busy = self._turn()
                self._turn_began = 0.0
                if not busy and not self._inbox:
                    self._wake.wait(0.5)
                    self._wake.clear()
        stopped = Refused("stopping", "the server is shutting down")
        while self._inbox:
            self._inbox.popleft()()
        for scheduler in self._schedulers.values():
            scheduler.fail(stopped)
        self._hand_over()

    def _turn(self) -> bool:
        while self._inbox:
            self._inbox.popleft()()
        busy = False
        for name, scheduler in self._schedulers.items():
            try:
                busy |= scheduler.turn()
            except Exception as error:
                _log.exception("a step of %s failed", name)
                scheduler.fail(Refused("failed", f"the engine failed: {type(error).__name__}"))
        self._hand_over()
        return busy

    def _accept(self, groups: Sequence[Sequence[Job]], count: int, arrived: float) -> None:
        for jobs in groups:
            first = jobs[0]
            start: Continuation | None = None
            try:
                if first.start is not None:
                    start = self._unpacked(first.model, self.store.get(first.start, first.owner).content)
                self._schedulers[first.model].add(jobs, start, arrived)
            except (Refused, UserError) as error:
                refused = error if isinstance(error, Refused) else Refused("invalid", str(error), param="state")
                for job in jobs:
                    self._deliver(job, Event(finish="error", error=refused))
        with self._lock:
            self._unread -= count

    def _deliver(self, job: Job, event: Event) -> None:
        self._outbox.append((job, event))

    def _hand_over(self) -> None:
        if self._outbox and self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(_receive, self._outbox)
        self._outbox = []

    def _save(self, job: Job, at: Continuation, event: Event) -> None:
        """Keep a state, then deliver. With a folder another thread waits for the disk."""
        run = self.models[job.model].run
        assert isinstance(run, LanguageModelRun)
        content = run.pack(at, weights=self.models[job.model].weights)
        new = New(job.save or "", job.owner, job.model, content, int(at.position_B) % STREAM)
        if self.spec.states is None:
            self._outbox += self._kept([(job, new, event)])
            return
        self._hand_over()  # earlier events first
        self._unsaved.put((job, new, event))

    def _kept(self, unsaved: Sequence[tuple[Job, New, Event]]) -> list[tuple[Job, Event]]:
        """The last events of texts whose states are saved now, or could not be."""
        try:
            saved = self.store.put_all([new for _, new, _ in unsaved])
        except Refused as error:
            return [(job, event._replace(finish="error", error=error)) for job, _, event in unsaved]
        return [(job, event._replace(state=about)) for (job, _, event), about in zip(unsaved, saved)]

    def _write_states(self) -> None:
        """In a thread of its own: all states that came while the disk was busy are one transaction."""
        while (unsaved := self._unsaved.get()) is not None:
            several = [unsaved]
            while not self._unsaved.empty() and len(several) < _SAVED_AT_ONCE:
                if (unsaved := self._unsaved.get()) is None:
                    self._unsaved.put(None)
                    break
                several.append(unsaved)
            done = self._kept(several)
            if self._loop is not None and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(_receive, done)

    def _unpacked(self, model: str, content: bytes) -> Continuation:
        served = self.models[model]
        assert isinstance(served.run, LanguageModelRun)
        return served.run.unpack(content, weights=served.weights)

    def _tokens_read(self, model: str, content: bytes) -> int:
        return int(self._unpacked(model, content).position_B) % STREAM


def _receive(events: Sequence[tuple[Job, Event]]) -> None:
    for job, event in events:
        job.receive(event)


def _settle(answer: "asyncio.Future[Any]", result: Any, error: Refused | None) -> None:
    if answer.done():
        return
    if error is not None:
        answer.set_exception(error)
    else:
        answer.set_result(result)
