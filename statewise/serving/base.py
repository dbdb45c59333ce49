"""What the HTTP side asks of an engine, here or on a cluster: jobs are checked before, states are kept after.

`submit`, `cancel` and the store may be used from any thread. Events arrive on the event loop.
"""

import asyncio
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from statewise.decoding import Continuation
from statewise.kernels import threads_for
from statewise.runtime import STREAM
from statewise.serving.job import Event, Job, Refused, Tokens
from statewise.serving.metrics import Metrics
from statewise.serving.served import Served, served_runs
from statewise.serving.store import New, StateStore, is_state_id
from statewise.specs import ServingSpec, UserError
from statewise.tasks import LanguageModelRun, PredictingRun, Run

_SAVED_AT_ONCE = 256  # states of one transaction
_log = logging.getLogger("statewise.serving")


class AnyEngine(ABC):
    def __init__(self, runs: Mapping[str, Run], spec: ServingSpec) -> None:
        self.spec, self.metrics = spec, Metrics()
        self.models: dict[str, Served] = served_runs(runs)
        self.store = StateStore(
            most=spec.state_count,
            most_bytes=spec.state_memory,
            folder=None if spec.states is None else Path(spec.states),
            check={
                name: partial(self._tokens_read, name)
                for name, run in runs.items()
                if isinstance(run, LanguageModelRun)
            },
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._unsaved: SimpleQueue[tuple[Job, New, Event] | None] = SimpleQueue()  # None: no more
        self._writer = threading.Thread(target=self._write_states, name="statewise-states", daemon=True)
        self._stopping = self._draining = False
        self._calls = 0  # predictions that are asked for and not answered

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._writer.start()

    @abstractmethod
    def submit(self, jobs: Sequence[Job]) -> None:
        """Accept all of these jobs or none. Jobs with one prompt and one start share its reading."""

    @abstractmethod
    def cancel(self, jobs: Sequence[Job]) -> None:
        """Give these jobs up; they deliver no further event, and their rows are free after the current step."""

    @abstractmethod
    async def predict(self, model: str, given: list[Any], *, owner: str) -> list[dict[str, Any]]:
        """The answers of a run of another task: the dictionaries of `predict_rows`."""

    def _predicting(self, model: str) -> PredictingRun:
        """The run of that name, if it predicts."""
        served = self.models.get(model)
        if served is None or not isinstance(served.run, PredictingRun):
            raise Refused(
                "not_found", f"no model {model!r} is served that predicts", param="model", code="model_not_found"
            )
        return served.run

    def _count_call(self) -> None:
        """One prediction more; refused if too many wait."""
        if self._calls >= self.spec.queue + 1:
            self.metrics.rejected("overloaded")
            raise Refused("overloaded", "too many requests are waiting; try again later")
        self._calls += 1

    @property
    @abstractmethod
    def room(self) -> int:
        """How many more texts would be accepted now; below 0, that many too many are there."""

    def check_room(self, texts: int = 1) -> None:
        """Refuse so many texts if there is no room for them."""
        if texts > self.room:
            self.metrics.rejected("overloaded")
            raise Refused("overloaded", "too many texts are waiting; try again later")

    @property
    @abstractmethod
    def busy(self) -> bool: ...

    @property
    @abstractmethod
    def alive(self) -> bool: ...

    async def drain(self, seconds: float) -> None:
        """Refuse what comes, and wait for what runs, at most so long."""
        self._draining = True
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.alive and self.busy:
            await asyncio.sleep(0.02)

    def stop(self) -> None:
        """After what computes has ended: save what is not saved yet."""
        self._unsaved.put(None)
        if self._writer.is_alive():
            self._writer.join()
        self.store.close()

    def gauges(self) -> dict[str, float]:
        return {"saved_states": len(self.store), "saved_state_bytes": self.store.held_bytes}

    def _check(self, jobs: Sequence[Job]) -> None:
        """Refuse jobs that cannot be done, or not now."""
        if self._draining or self._stopping:
            raise Refused("stopping", "the server is shutting down")
        if not self.alive:
            raise Refused("failed", "the engine has stopped")
        for job in jobs:
            self._check_job(job)

    def _check_job(self, job: Job) -> None:
        served = self.models.get(job.model)
        if served is None or served.tokenizer is None:
            raise Refused(
                "not_found", f"no language model {job.model!r} is served", param="model", code="model_not_found"
            )
        vocab = served.vocab or 0
        if job.prompt and not 0 <= min(job.prompt) <= max(job.prompt) < vocab:
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

    def _send(self, events: Sequence[tuple[Job, Event]], tokens: Sequence[Tokens] = ()) -> None:
        """What came in one turn: of one job never a token after an event."""
        if (events or tokens) and self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(_receive, events, tokens)

    def _keep(self, job: Job, new: New, event: Event) -> None:
        """Save a state, then send the event. With a folder another thread waits for the disk."""
        if self.spec.states is None:
            self._send(self._kept([(job, new, event)]))
        else:
            self._unsaved.put((job, new, event))

    def _kept(self, unsaved: Sequence[tuple[Job, New, Event]]) -> list[tuple[Job, Event]]:
        """The last events of texts whose states are saved now, or could not be."""
        try:
            saved = self.store.put_all([new for _, new, _ in unsaved])
        except Exception as raised:  # the thread that saves must outlive it
            if isinstance(raised, Refused):
                error = raised
            else:
                _log.exception("states could not be saved")
                error = Refused("failed", f"the state could not be saved: {type(raised).__name__}")
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
            self._send(self._kept(several))

    def _unpacked(self, model: str, content: bytes) -> Continuation:
        served = self.models[model]
        assert isinstance(served.run, LanguageModelRun)
        return served.run.unpack(content, weights=served.weights)

    def _tokens_read(self, model: str, content: bytes) -> int:
        with threads_for(0):  # this thread is no engine's, and would get threads of its own for torch
            return int(self._unpacked(model, content).position_B) % STREAM


def _receive(events: Sequence[tuple[Job, Event]], tokens: Sequence[Tokens]) -> None:
    for several in tokens:
        for job, text, id in zip(*several):
            if job.receive_token is None:
                job.receive(Event(text, (id,)))
            else:
                job.receive_token(text, id)
    for job, event in events:
        job.receive(event)
