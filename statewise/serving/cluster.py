"""Replicas on a Ray cluster behind one HTTP side, which keeps all saved states.

A text goes to the replica of its session, or to the one with the least to do. If a replica dies, what it was doing is
done again by another one from the same start: the seed decides every token, so what clients have seen already is only
compared, and the text goes on where it was. Saved states lie with the front, on disk if there is a folder, so no
replica is ever the only one that has them.
"""

import asyncio
import hashlib
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from statewise.cluster import ray_cluster
from statewise.serving.base import AnyEngine
from statewise.serving.job import Event, Job, Refused
from statewise.serving.replica import Came, Order, Replica, nobody
from statewise.serving.store import New
from statewise.specs import ServingSpec, UserError, option, optional
from statewise.tasks import Run

_FAILURES = 3  # replicas in a row that do not start, after which the server gives up
_log = logging.getLogger("statewise.serving")


@dataclass(eq=False, slots=True)
class _Text:
    """A job that a replica is doing."""

    job: Job
    start: New | None
    place: int
    arrived: float
    ids: list[int] = field(default_factory=list)  # that were delivered
    events: int = 0
    repeated: int = 0  # events of these that the present replica has delivered, too
    repeated_ids: int = 0
    last: float = 0.0


class Cluster(AnyEngine):
    """Serves runs by name, on `spec.replicas` actors."""

    def __init__(self, runs: Mapping[str, Run], spec: ServingSpec, load: Callable[[], Mapping[str, Run]]) -> None:
        """`load` opens the runs again, on the cluster."""
        super().__init__(runs, spec)
        connected: Future[Any] = Future()
        self._over = threading.Event()
        self._holder = threading.Thread(target=self._hold, args=(connected,), name="statewise-ray", daemon=True)
        self._holder.start()
        self._ray = connected.result()
        try:
            actor: Callable[..., Any] = self._ray.remote(**self._resources())(Replica).options(max_restarts=0).remote
            told = spec.model_dump(exclude={"keys", "host"})
            self._made: Callable[[], Any] = lambda: actor(load, told, spec.threads or 1)
            self._actors: dict[int, Any] = {place: self._made() for place in range(spec.replicas)}
            self.pids = {place: self._started(each) for place, each in self._actors.items()}
        except BaseException:
            self._over.set()
            raise
        self._texts: dict[int, _Text] = {}  # by number
        self._numbers: dict[int, int] = {}  # by job
        self._next = count()
        self._lock = threading.RLock()
        self._failed = False
        self._threads = [
            threading.Thread(target=self._listen, args=(place,), name=f"statewise-replica-{place}", daemon=True)
            for place in self._actors
        ]

    def _hold(self, connected: "Future[Any]") -> None:
        """The processes that Ray starts here end with the thread that started them: so it lives as long as we do."""
        try:
            with ray_cluster(optional("ray", extra="ray", needed_by="replicas on a Ray cluster")) as ray:
                connected.set_result(ray)
                self._over.wait()
        except BaseException as error:
            if connected.done():
                raise
            connected.set_exception(error)

    def _resources(self) -> dict[str, Any]:
        spec, there = self.spec, self._ray.cluster_resources()
        cpus = spec.threads or 1
        if cpus * spec.replicas > there.get("CPU", 0):
            raise UserError(
                f"{spec.replicas} replicas with {cpus} threads need {cpus * spec.replicas} CPUs; "
                f"Ray has {there.get('CPU', 0):g}",
                fix=f"use fewer: {option('replicas', '1')}",
            )
        gpus = 0.0 if spec.device == "cpu" else min(1.0, there.get("GPU", 0) / spec.replicas)
        return {"num_cpus": cpus, "num_gpus": gpus, "scheduling_strategy": "SPREAD"}

    def _started(self, actor: Any) -> int:
        pid: int = self._ray.get(actor.start.remote())
        return pid

    # ---------------------------------------------------------------- from the event loop

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        super().start(loop)
        for thread in self._threads:
            thread.start()

    def submit(self, jobs: Sequence[Job]) -> None:
        self._check(jobs)
        starts = [self._start_of(job) for job in jobs]
        with self._lock:
            self.check_room(len(jobs))
            if not self._actors:
                raise Refused("overloaded", "all replicas were lost and are being replaced; try again soon")
            place, numbers = self._place_of(jobs[0]), []
            for job, start in zip(jobs, starts):
                numbers.append(next(self._next))
                self._texts[numbers[-1]] = _Text(job, start, place, time.monotonic())
                self._numbers[id(job)] = numbers[-1]
                self.metrics.prompt_tokens(len(job.prompt))
            self._order(place, numbers)

    @property
    def room(self) -> int:
        return self.spec.slots * self.spec.replicas + self.spec.queue - len(self._texts)

    def _start_of(self, job: Job) -> New | None:
        if job.start is None:
            return None
        saved = self.store.get(job.start, job.owner)
        return New(job.start, job.owner, saved.model, saved.content, saved.tokens)

    def _place_of(self, job: Job) -> int:
        """Of a session always the same while that replica lives; sessions of others do not move when one is lost."""
        session = job.start or job.save
        if session is not None:
            return max(
                self._actors, key=lambda place: hashlib.sha256(f"{place} {job.owner} {session}".encode()).digest()
            )
        load = dict.fromkeys(self._actors, 0)
        for text in self._texts.values():
            load[text.place] = load.get(text.place, 0) + 1
        return min(self._actors, key=lambda place: load[place])

    def _order(self, place: int, numbers: Sequence[int]) -> None:
        orders = []
        for number in numbers:
            text = self._texts[number]
            deadline = None if text.job.deadline is None else text.job.deadline - time.monotonic()
            orders.append(
                Order(number, replace(text.job, receive=nobody, receive_token=None, deadline=deadline), text.start)
            )
        self._actors[place].submit.remote(orders)

    def cancel(self, jobs: Sequence[Job]) -> None:
        with self._lock:
            given_up: dict[int, list[int]] = {}
            for job in jobs:
                number = self._numbers.get(id(job))
                if number is not None:
                    given_up.setdefault(self._forget(number).place, []).append(number)
                    self.metrics.finished("cancelled")
            for place, numbers in given_up.items():
                if place in self._actors:
                    self._actors[place].cancel.remote(numbers)

    def _forget(self, number: int) -> _Text:
        text = self._texts.pop(number)
        del self._numbers[id(text.job)]
        return text

    async def predict(self, model: str, given: list[Any], *, owner: str) -> list[dict[str, Any]]:
        self._predicting(model)
        self._count_call()
        try:
            for place in sorted(self._actors, key=lambda place: (place + self._calls) % self.spec.replicas):
                try:
                    call = self._actors[place].predict.remote(model, given, owner)
                    return await asyncio.to_thread(self._ray.get, call)
                except self._ray.exceptions.RayTaskError as error:
                    cause = error.cause
                    raise cause if isinstance(cause, Refused) else Refused("failed", "the prediction failed") from None
                except self._ray.exceptions.RayError:
                    continue  # the next replica
            raise Refused("failed", "no replica answered")
        finally:
            self._calls -= 1

    @property
    def busy(self) -> bool:
        return bool(self._texts or self._calls)

    @property
    def alive(self) -> bool:
        return not self._failed

    def gauges(self) -> dict[str, float]:
        running = {"requests_running": float(len(self._texts)), "requests_waiting": 0.0}
        up = {f'replica_up{{replica="{place}",pid="{self.pids[place]}"}}': 1.0 for place in list(self._actors)}
        return super().gauges() | running | up

    def stop(self) -> None:
        self._stopping = True
        with self._lock:
            for actor in self._actors.values():
                self._ray.kill(actor)
        for thread in self._threads:
            if thread.is_alive():
                thread.join(10.0)
        stopped = Refused("stopping", "the server is shutting down")
        self._send([(text.job, Event(finish="error", error=stopped)) for text in self._texts.values()])
        super().stop()
        self._over.set()
        self._holder.join(30.0)

    # ---------------------------------------------------------------- a thread for each replica

    def _listen(self, place: int) -> None:
        while not self._stopping:
            try:
                came = self._ray.get(self._actors[place].events.remote())
            except self._ray.exceptions.RayError:
                if not self._stopping:
                    self._replace(place)
                continue
            self._take_in(place, came)

    def _take_in(self, place: int, came: Sequence[Came]) -> None:
        events: list[tuple[Job, Event]] = []
        unsaved: list[tuple[Job, New, Event]] = []
        with self._lock:
            for number, event, saved in came:
                text = self._texts.get(number)
                if text is None or text.place != place:  # cancelled, or done by another one
                    continue
                known = self._known(text, event)
                if known is None:
                    continue
                if known.finish is not None:
                    self._forget(number)
                    self.metrics.finished(known.finish)
                    self.metrics.request(time.monotonic() - text.arrived)
                if saved is not None and known.error is None:
                    new = New(text.job.save or "", text.job.owner, saved.model, saved.content, saved.tokens)
                    unsaved.append((text.job, new, known))
                else:
                    events.append((text.job, known))
        self._send(events)
        for each in unsaved:
            self._keep(*each)

    def _known(self, text: _Text, event: Event) -> Event | None:
        """The event as the client gets it; None if it has it already, from a replica that died."""
        if text.repeated < text.events:
            begin = text.repeated_ids
            if event.finish is not None or tuple(text.ids[begin : begin + len(event.ids)]) != event.ids:
                lost = Refused("failed", "a replica was lost, and another one did not repeat the text exactly")
                return Event(finish="error", error=event.error or lost)
            text.repeated += 1
            text.repeated_ids += len(event.ids)
            return None
        now = time.monotonic()
        if event.ids:
            self.metrics.token_gap(now - text.last) if text.last else self.metrics.first_token(now - text.arrived)
            self.metrics.generated(len(event.ids))
            text.last = now
        text.ids += event.ids
        text.events += 1
        text.repeated += 1
        text.repeated_ids += len(event.ids)
        return event

    def _replace(self, place: int) -> None:
        """A replica died: others do what it was doing, and a new one takes its place."""
        _log.warning("replica %d was lost", place)
        with self._lock:
            del self._actors[place]
            if self._actors:
                self._move(place)
        for _ in range(_FAILURES):
            try:
                actor = self._made()
                pid = self._started(actor)
            except self._ray.exceptions.RayError as error:
                _log.warning("a replica did not start: %s", error)
                if self._stopping:
                    return
                continue
            with self._lock:
                self._actors[place], self.pids[place] = actor, pid
                self._move(place)
            return
        self._failed = True

    def _move(self, place: int) -> None:
        """Give the texts of a lost replica to others, from their beginning."""
        moved: dict[int, list[int]] = {}
        for number, text in self._texts.items():
            if text.place == place:
                text.place, text.repeated, text.repeated_ids = self._place_of(text.job), 0, 0
                moved.setdefault(text.place, []).append(number)
        for other, numbers in moved.items():
            self._order(other, numbers)
