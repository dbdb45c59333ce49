"""On the cluster: one engine in a Ray actor. Jobs come in by number, events go out in batches.

A replica keeps no state that only it has: the front sends the state that a text starts from, and gets the one that is
saved.
"""

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import torch

from statewise.serving.engine import Engine
from statewise.serving.job import Event, Job, Refused
from statewise.serving.store import New, Saved
from statewise.specs import ServingSpec
from statewise.tasks import Run

_REST = 1.0  # seconds after which the front hears that there is nothing to hear


class Order(NamedTuple):
    """A job on its way to a replica."""

    number: int
    job: Job  # its deadline is seconds from now: clocks differ
    start: New | None


class Came(NamedTuple):
    """An event on its way back, with the state that was saved."""

    number: int
    event: Event
    saved: Saved | None


def nobody(event: Event) -> None:
    """The receiver of a job that travels."""


class Replica:
    def __init__(self, load: Callable[[], Mapping[str, Run]], spec: dict[str, Any], threads: int) -> None:
        torch.set_num_threads(threads)
        self._engine = Engine(load(), ServingSpec(**{**spec, "states": None, "keys": (), "host": "127.0.0.1"}))
        self._running: dict[int, Job] = {}
        self._came: list[Came] = []
        self._news = asyncio.Event()

    async def start(self) -> int:
        self._engine.start(asyncio.get_running_loop())
        return os.getpid()

    async def submit(self, orders: Sequence[Order]) -> None:
        jobs = []
        for number, job, _ in orders:
            deadline = None if job.deadline is None else time.monotonic() + job.deadline
            jobs.append(replace(job, receive=partial(self._receive, number), deadline=deadline))
            self._running[number] = jobs[-1]
        try:
            self._engine.store.put_all([start for _, _, start in orders if start is not None])
            self._engine.submit(jobs)
        except Refused as refused:
            for number, _, _ in orders:
                self._receive(number, Event(finish="error", error=refused))

    async def cancel(self, numbers: Sequence[int]) -> None:
        self._engine.cancel([self._running.pop(number) for number in numbers if number in self._running])

    async def events(self) -> list[Came]:
        """What came since the last call; waits a while for something to come."""
        if not self._engine.alive:
            os._exit(1)  # the front notices, and starts another one
        try:
            await asyncio.wait_for(self._news.wait(), _REST)
        except TimeoutError:
            return []
        self._news.clear()
        came, self._came = self._came, []
        return came

    async def predict(self, model: str, given: list[Any], owner: str) -> list[dict[str, Any]]:
        return await self._engine.predict(model, given, owner=owner)

    def _receive(self, number: int, event: Event) -> None:
        job = self._running.get(number)
        if job is None:  # cancelled while this was on its way
            return
        saved = None
        if event.finish is not None:
            del self._running[number]
            if event.state is not None and job.save is not None:
                saved = self._engine.store.get(job.save, job.owner)
        self._came.append(Came(number, event, saved))
        self._news.set()
