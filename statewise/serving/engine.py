"""One thread owns torch: it takes jobs from the event loop, gives every model its turn, and hands events back.

The event loop is woken once a turn, not once a token. A request that breaks something ends with an error, and so do the
texts beside it in that model's batch; the engine goes on. It is dead only if its thread is.
"""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

import statewise
from statewise.core import State, leaves
from statewise.data import Tokenizer
from statewise.decoding import Continuation
from statewise.models import longest_context
from statewise.runtime import STREAM
from statewise.serving.job import Event, Job, Refused
from statewise.serving.metrics import Metrics
from statewise.serving.scheduler import Scheduler
from statewise.serving.store import StateStore
from statewise.specs import ServingSpec, UserError
from statewise.tasks import LanguageModelRun, PredictingRun, Run
from statewise.training import weights_sha256

_HANGS = 60.0  # seconds of one turn after which the engine counts as dead
_log = logging.getLogger("statewise.serving")


@dataclass(frozen=True, slots=True)
class Served:
    """A run under the name that requests use."""

    name: str
    run: Run
    weights: str  # sha256
    created: int

    @property
    def task(self) -> str:
        return self.run.spec.task

    @property
    def family(self) -> str:
        """The name in the lineage, or the task."""
        return self.run.spec.name

    @property
    def tokenizer(self) -> Tokenizer | None:
        return self.run.tokenizer if isinstance(self.run, LanguageModelRun) else None

    @property
    def vocab(self) -> int | None:
        return self.run.tokenizer.vocab if isinstance(self.run, LanguageModelRun) else None

    @property
    def parameters(self) -> int:
        return sum(p.numel() for p in self.run.model.parameters())

    @property
    def max_context(self) -> int | None:
        """Tokens that the model can read; None: any number."""
        return longest_context(self.run.model)

    @property
    def fingerprint(self) -> str:
        return f"{self.weights[:12]}-{statewise.__version__}"

    def state_bytes(self, tokens: int) -> int | None:
        """Memory of one text's state after so many tokens; None for a run that has no state to keep."""
        if not isinstance(self.run, LanguageModelRun):
            return None
        return bytes_after(self.run.model.init_state(1), tokens)


def bytes_after(initial: State, tokens: int) -> int:
    """Of a state after so many tokens: an axis that is empty at the beginning grows by one a token."""
    total = 0
    for _, leaf in leaves(initial):
        numbers = 1
        for size in leaf.shape:
            numbers *= size or tokens
        total += numbers * leaf.element_size()
    return total


class Engine:
    """Serves runs by name. `submit`, `cancel` and the store may be used from any thread."""

    def __init__(self, runs: Mapping[str, Run], spec: ServingSpec) -> None:
        self.spec, self.metrics = spec, Metrics()
        now = int(time.time())
        self.models = {name: Served(name, run, weights_sha256(run.model), now) for name, run in runs.items()}
        texts = {name: run for name, run in runs.items() if isinstance(run, LanguageModelRun)}
        for name, run in texts.items():
            if run.spec.data.direction == "reverse":
                raise UserError(f"{name} reads backwards, so it cannot continue a text", fix="serve another run")
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
        self._disk = ThreadPoolExecutor(1, thread_name_prefix="statewise-states")
        self._calls = 0  # predictions that are asked for and not answered
        self._stopping = self._draining = False
        self._turn_began = 0.0  # 0: idle

    # ---------------------------------------------------------------- from the event loop

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread.start()

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
            key = (job.model, job.start, job.owner, job.echo, job.logprobs, bytes(str(list(job.prompt)), "ascii"))
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
        self._disk.shutdown(wait=True)

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
        if self.spec.threads is not None and not self.spec.batch_invariant:  # `generate` computes with all of them
            torch.set_num_threads(self.spec.threads)
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
                    _, content = self.store.get(first.start, first.owner)
                    start = self._unpacked(first.model, content)
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
        name, owner, model = job.save or "", job.owner, job.model
        run = self.models[model].run
        assert isinstance(run, LanguageModelRun)
        content = run.pack(at, weights=self.models[model].weights)
        tokens = int(at.position_B) % STREAM

        def keep() -> Event:
            try:
                return event._replace(state=self.store.put(name, owner, model, content, tokens))
            except (OSError, Refused) as error:
                refused = error if isinstance(error, Refused) else Refused("failed", "the state could not be written")
                return event._replace(finish="error", error=refused)

        if self.spec.states is None:
            self._deliver(job, keep())
            return

        def keep_and_tell() -> None:
            done = keep()
            if self._loop is not None and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(job.receive, done)

        self._hand_over()  # earlier events first
        self._disk.submit(keep_and_tell)

    def _unpacked(self, model: str, content: bytes) -> Continuation:
        served = self.models[model]
        assert isinstance(served.run, LanguageModelRun)
        return served.run.unpack(content, weights=served.weights)

    def _tokens_read(self, model: str, content: bytes) -> int:
        return int(self._unpacked(model, content).position_B) % STREAM


def _no_model(message: str) -> Refused:
    return Refused("not_found", message, param="model", code="model_not_found")


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
