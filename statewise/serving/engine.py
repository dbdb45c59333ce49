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
from typing import Any

import torch

from statewise.decoding import Continuation
from statewise.runtime import STREAM
from statewise.serving.base import AnyEngine
from statewise.serving.job import Event, Job, Refused, Tokens
from statewise.serving.memory import Housekeeping, tidy
from statewise.serving.scheduler import Scheduler
from statewise.serving.store import New
from statewise.specs import ServingSpec, UserError
from statewise.tasks import LanguageModelRun, Run

_HANGS = 60.0  # seconds of one turn after which the engine counts as dead
_log = logging.getLogger("statewise.serving")


class Engine(AnyEngine):
    """Serves runs by name, in this process."""

    def __init__(self, runs: Mapping[str, Run], spec: ServingSpec) -> None:
        super().__init__(runs, spec)
        texts = {name: run for name, run in runs.items() if isinstance(run, LanguageModelRun)}
        self._schedulers = {
            name: Scheduler(
                run,
                slots=spec.slots,
                prefix_bytes=0 if spec.prefix_sharing == "none" else spec.prefix_bytes,
                shared=spec.prefix_sharing == "all",
                alone=spec.batch_invariant,
                queue_seconds=spec.queue_seconds,
                deliver=self._deliver,
                deliver_tokens=self._deliver_tokens,
                save=self._save,
                metrics=self.metrics,
                context=self.models[name].max_context,
            )
            for name, run in texts.items()
        }
        self._inbox: deque[Callable[[], None]] = deque()
        self._wake = threading.Event()
        self._unread = 0  # texts in the inbox
        self._lock = threading.RLock()
        self._outbox: list[tuple[Job, Event]] = []
        self._tokens: list[Tokens] = []
        self._thread = threading.Thread(target=self._run, name="statewise-engine", daemon=True)
        self._turn_began = 0.0  # 0: idle

    # ---------------------------------------------------------------- from the event loop

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        super().start(loop)
        self._thread.start()

    def submit(self, jobs: Sequence[Job]) -> None:
        """Accept all of these jobs or none. Jobs with one prompt and one start share its reading."""
        self._check(jobs)
        with self._lock:
            self.check_room(len(jobs))
            self._unread += len(jobs)
        groups: dict[tuple[Any, ...], list[Job]] = {}
        for job in jobs:
            how = (job.model, job.start, job.owner, job.echo, job.logprobs, job.whole, job.read)
            key = (*how, tuple(job.prompt))
            groups.setdefault(key, []).append(job)
        arrived = time.monotonic()
        self._put(lambda: self._accept(list(groups.values()), arrived))

    def cancel(self, jobs: Sequence[Job]) -> None:
        """Give these jobs up; they deliver no further event, and their rows are free after the current step."""

        def give_up() -> None:
            for name, scheduler in self._schedulers.items():
                scheduler.cancel([job for job in jobs if job.model == name])

        self._put(give_up)

    async def predict(self, model: str, given: list[Any], *, owner: str) -> list[dict[str, Any]]:
        """The answers of a run of another task: the dictionaries of `predict_rows`."""
        run, loop = self._predicting(model), asyncio.get_running_loop()
        if self._draining or not self.alive:
            raise Refused("stopping", "the server is shutting down")
        with self._lock:
            self._count_call()
        answer: asyncio.Future[list[dict[str, Any]]] = loop.create_future()

        def work() -> None:
            try:
                if answer.cancelled():
                    return
                predictions = run.predict_values(given)
                loop.call_soon_threadsafe(_settle, answer, predictions, None)
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

    def stop(self) -> None:
        """End the thread after its turn; texts that still run get an error."""
        self._stopping = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(10.0)
        super().stop()

    @property
    def room(self) -> int:
        with self._lock:
            held = self._unread + sum(each.held for each in self._schedulers.values())
        return self.spec.slots * max(1, len(self._schedulers)) + self.spec.queue - held

    @property
    def busy(self) -> bool:
        return bool(self._unread or self._calls or any(each.held for each in self._schedulers.values()))

    @property
    def alive(self) -> bool:
        hangs = self._turn_began and time.monotonic() - self._turn_began > _HANGS
        return self._thread.is_alive() and not hangs

    def gauges(self) -> dict[str, float]:
        gauges = super().gauges() | {
            "requests_running": sum(each.running for each in self._schedulers.values()),
            "requests_waiting": self._unread + sum(each.waiting for each in self._schedulers.values()),
        }
        for name, scheduler in self._schedulers.items():
            gauges[f'state_bytes{{model="{name}",family="{self.models[name].family}"}}'] = scheduler.state_bytes
        return gauges

    def _put(self, work: Callable[[], None]) -> None:
        self._inbox.append(work)
        self._wake.set()

    # ---------------------------------------------------------------- in the engine's thread

    def _run(self) -> None:
        if self.spec.threads is not None and not self.spec.batch_invariant:  # `generate` computes with all of them
            torch.set_num_threads(self.spec.threads)
        housekeeping = Housekeeping()
        with torch.no_grad():
            while not self._stopping:
                self._turn_began = time.monotonic()
                busy = self._turn()
                self._turn_began = 0.0
                if housekeeping.after_turn(busy=busy):
                    for scheduler in self._schedulers.values():
                        scheduler.rest()
                    self.store.rest()
                    tidy()
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

    def _accept(self, groups: Sequence[Sequence[Job]], arrived: float) -> None:
        for jobs in groups:
            first = jobs[0]
            start: Continuation | None = None
            refused: Refused | None = None
            try:
                if first.start is not None:
                    start = self._unpacked(first.model, self.store.get(first.start, first.owner).content)
            except Refused as error:
                refused = error
            except UserError as error:
                refused = Refused("invalid", str(error), param="state")
            except Exception as error:  # the texts of others go on
                _log.exception("a saved state of %s cannot be continued", first.model)
                refused = Refused("failed", f"the saved state cannot be continued: {type(error).__name__}")
            with self._lock:  # nobody may count these texts twice
                self._unread -= len(jobs)
                if refused is None:
                    self._schedulers[first.model].add(jobs, start, arrived)
            if refused is not None:
                for job in jobs:
                    self._deliver(job, Event(finish="error", error=refused))

    def _deliver(self, job: Job, event: Event) -> None:
        self._outbox.append((job, event))

    def _deliver_tokens(self, tokens: Tokens) -> None:
        self._tokens.append(tokens)

    def _hand_over(self) -> None:
        self._send(self._outbox, self._tokens)
        self._outbox, self._tokens = [], []

    def _save(self, job: Job, at: Continuation, event: Event) -> None:
        """Keep a state, then deliver. With a folder another thread waits for the disk."""
        run = self.models[job.model].run
        assert isinstance(run, LanguageModelRun)
        content = run.pack(at, weights=self.models[job.model].weights)
        self._hand_over()  # earlier events first
        self._keep(job, New(job.save or "", job.owner, job.model, content, int(at.position_B) % STREAM), event)


def _settle(answer: "asyncio.Future[Any]", result: Any, error: Refused | None) -> None:
    if answer.done():
        return
    if error is not None:
        answer.set_exception(error)
    else:
        answer.set_result(result)
